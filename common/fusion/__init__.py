"""Candidate groups on the source graph, and what crosses their border."""
