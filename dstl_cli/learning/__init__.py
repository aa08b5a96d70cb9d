"""Transform learning: five methods behind one loop, each driven by second moments of the patches."""
