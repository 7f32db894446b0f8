"""The ONNX Runtime session (imported nowhere else), its trace, what tracing costs, and latency statistics."""
