"""From a quantized model (QDQ) to the layers of an engine."""
