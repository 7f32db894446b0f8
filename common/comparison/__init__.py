"""Differences between measurements: which are real, how large they are, and how many runs would decide the others."""
