"""Measurements of the pipeline itself: its run time, its clocks and its models, compared with independent programs."""
