"""Accelerators with one buffer for all operands: which layers are fused, and how groups are tiled."""
