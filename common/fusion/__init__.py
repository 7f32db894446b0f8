"""Candidate groups and chains on the source graph, and the tensors that cross their border."""
