"""NVIDIA GPUs, by NVML."""
