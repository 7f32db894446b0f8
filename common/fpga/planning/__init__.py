"""From a workload to a plan and its tables."""
