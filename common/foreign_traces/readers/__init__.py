"""Readers of profiles: one module per program."""
