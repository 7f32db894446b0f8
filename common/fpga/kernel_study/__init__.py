"""Kernels without a plan: one kernel on one board, and lists of kernels under the roofs of boards."""
