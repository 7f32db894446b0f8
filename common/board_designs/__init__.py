"""Which array to build on a board for a model: all arrays of a set that fit, at the cost of the design space."""
