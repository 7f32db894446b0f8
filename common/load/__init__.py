"""Load: when requests arrive, how they are batched, the loop that serves them, and the figures of its record."""
