"""Profiled sessions: the loop of runs, the trace, the cost of profiling, imported traces, and ceilings of the host."""
