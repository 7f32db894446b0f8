"""What is timed against a budget."""
