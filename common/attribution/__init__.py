"""Which source nodes each executed node computes, by which rule, and whether time and work then add up."""
