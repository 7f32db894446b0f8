"""Read and write ONNX files without their weights."""
