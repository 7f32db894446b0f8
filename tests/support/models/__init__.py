"""ONNX models and graphs of a few nodes."""
