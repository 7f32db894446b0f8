"""A plan as one integer program: its variables and constraints, its solvers, and the search with them."""
