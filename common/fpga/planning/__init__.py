"""Planning: from a workload and a board to an offload plan and its tables."""
