"""Pictures of a plan, of its schedule, of the board, and of single kernels."""
