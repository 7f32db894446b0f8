"""Sensors of the host, one kind per module, and the sampler that reads them during the runs."""
