"""Transformers: builders of encoders for text and images."""
