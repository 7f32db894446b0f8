"""Mends of a model: what a finding asks for, done by hand-written rules on the graph, or why it cannot be done."""
