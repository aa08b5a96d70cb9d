"""Measuring: how near an estimate is to the truth, and the paper's experiments."""
