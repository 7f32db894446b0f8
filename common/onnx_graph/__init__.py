"""Reading ONNX files without their weights: the shared graph with its shapes, bytes and work."""
