"""The graphs of a model as all rooms speak of them: nodes, operators, formats, sizes over unbound dimensions."""
