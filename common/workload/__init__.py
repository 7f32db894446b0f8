"""What a model asks of kernels: layers, tasks, the tensors between them, and what each costs the host."""
