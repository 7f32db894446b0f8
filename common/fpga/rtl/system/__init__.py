"""A system around an engine: a bridge from a link to its registers and its memory, its host, and its simulation."""
