"""Every table declared once, read, validated and written atomically, with its provenance beside it."""
