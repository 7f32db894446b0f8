"""What a number format does to the outputs of one model, on samples of its user."""
