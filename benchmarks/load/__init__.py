"""Load tests: their generator, beside LoadGen, and the predicted queue."""
