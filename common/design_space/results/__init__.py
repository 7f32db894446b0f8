"""Results of searches: rows of tables, their comparison, and the cache of earlier results."""
