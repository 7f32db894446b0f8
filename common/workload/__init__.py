"""The work of a model for kernels: layers, tasks, the tensors between them, and what each costs the host."""
