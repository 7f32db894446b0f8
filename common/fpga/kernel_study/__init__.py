"""One kernel on one board, for checking a model by hand."""
