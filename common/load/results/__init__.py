"""What a record says: its validity, its figures, its tables."""
