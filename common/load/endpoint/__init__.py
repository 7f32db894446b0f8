"""A model at a remote endpoint that speaks KServe's Open Inference Protocol (v2), by HTTP or gRPC."""
