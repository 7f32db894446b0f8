"""The loop of runs, and what was measured in it."""
