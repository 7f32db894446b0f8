"""Ceilings of the host: operators with their sessions, timed in slices."""
