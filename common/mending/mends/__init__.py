"""One mend per module: a function from a case to the mended model, or to the reason why it does not apply."""
