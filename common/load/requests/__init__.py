"""Which requests come and when, how they make batches, and the record of what became of each."""
