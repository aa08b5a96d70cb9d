"""What makes compiled kernels of plain functions, keeps them, and runs what was kept."""
