"""Tables: declared once, checked when read and written, put in place together, each with its provenance."""
