"""What searches found: rows of tables, their comparison, and the cache of earlier results."""
