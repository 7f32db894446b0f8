"""All mappings of a nest that may be best, their bounds, and the best of them."""
