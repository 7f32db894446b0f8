"""Load: when requests arrive, how they are batched, the loop that serves them, and what the record of it tells."""
