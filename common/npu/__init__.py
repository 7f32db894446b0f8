"""Profiles of neural processing units: one reader per file format, and the summary of all files together."""
