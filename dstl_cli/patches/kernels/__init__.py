"""Compiled kernels: private, on plain buffers, each equal to a slow and obvious version in tests/."""
