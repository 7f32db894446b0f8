"""How far a model in a number format is from the same model in float, on samples."""
