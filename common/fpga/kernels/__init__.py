"""Kernel models: one file each, an equation with its source, resources with it."""
