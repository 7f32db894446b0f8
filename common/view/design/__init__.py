"""Accelerators, and how layers are mapped on them."""
