"""From a model in float to the same model in a number format."""
