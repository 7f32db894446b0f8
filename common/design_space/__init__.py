"""Accelerators and how layers are mapped on them: cost of a mapping, and the search for the best one."""
