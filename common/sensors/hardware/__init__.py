"""Hardware counters, by perf."""
