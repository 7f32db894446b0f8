"""Dimensions without a number: their binding, and counts over those that stay unbound."""
