"""Groups of layers: which may run together, and what their tiles compute, read and keep."""
