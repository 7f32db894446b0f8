"""Accelerators: an array of multipliers and its memories, their files, and sizes to try."""
