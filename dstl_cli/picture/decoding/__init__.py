"""Decoding in a limited child process: what decodes, the child, and how the program asks it."""
