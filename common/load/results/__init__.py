"""Results of a load test: validity, figures, tables."""
