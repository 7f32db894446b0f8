"""Synthetic tables of stages."""
