"""Mends of convolutions, and of what is before or after them."""
