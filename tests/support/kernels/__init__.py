"""Kernels on a board, their C++, and small plans."""
