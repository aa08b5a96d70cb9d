"""Whole runs over files: their bookkeeping, checkpoints and resumption."""
