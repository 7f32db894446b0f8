"""From an ONNX file to the shared graph: no weights are read; shapes, bytes and work are."""
