"""The offload plan: kernels, resources, verdicts, and single kernels."""
