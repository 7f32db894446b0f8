"""Builders of ONNX models with seeded weights: no weights are kept in this repository."""
