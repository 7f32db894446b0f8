"""Find the type and shape of every value of a model, bodies of control flow included."""
