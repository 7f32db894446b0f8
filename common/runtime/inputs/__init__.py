"""Inputs of a model: given files, images, categories and generated values."""
