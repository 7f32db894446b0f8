"""Bottlenecks: rules as data, what they find in the tables of a measurement, and what mending it would gain at most."""
