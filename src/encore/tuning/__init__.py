"""Choosing K, P and Q before a stream is learnt: the paper's HTOCL, which the controllers compete with."""
