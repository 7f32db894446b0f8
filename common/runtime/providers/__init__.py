"""Execution providers: what each needs and gives, and whether it ran what it was asked to run."""
