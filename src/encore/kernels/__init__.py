"""Kernels of our own, where those that PyTorch brings are too many and too small for a GPU."""
