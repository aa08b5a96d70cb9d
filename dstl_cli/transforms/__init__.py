"""Sparsifying transforms W = T Phi: the fixed factor, the learnt one, their files, and those shipped."""
