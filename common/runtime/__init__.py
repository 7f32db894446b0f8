"""ONNX Runtime: sessions, execution providers and inputs. The only importer of onnxruntime."""
