"""What an offload plan gains: latency, energy and throughput, each term of Amdahl's law by itself."""
