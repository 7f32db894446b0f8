"""Accelerators with several memories: which tensors stay on the chip between mapped layers."""
