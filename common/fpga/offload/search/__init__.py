"""The search for the best plan of a network: segment by segment, as a whole, or for a stream of inferences."""
