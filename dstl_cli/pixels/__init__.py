"""Pixels of any depth and colour as grey channels for the numerics, and their coarser scales."""
