"""Kernel models: cycles from an equation with its source, and resources. One module per model."""
