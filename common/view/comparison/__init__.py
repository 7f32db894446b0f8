"""Comparisons of measurements, and their history."""
