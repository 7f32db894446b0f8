"""Kernels that stream operands through lanes: attention, rows, and products that read their weights once."""
