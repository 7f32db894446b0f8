"""Profiles that other programs recorded: one reader per format, and the layers' times as rows of op_latency."""
