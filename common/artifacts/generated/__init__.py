"""Texts that follow from the declarations: documents, make variables, row types."""
