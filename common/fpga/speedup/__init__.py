"""Speedup of an offload plan in latency, energy and throughput, term by term of Amdahl's law."""
