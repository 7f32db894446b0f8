"""The best configuration of a service within a bound of its latency."""
