"""Sensors of the host, one per module, and the sampler that reads them while something runs."""
