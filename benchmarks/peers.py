"""Commands of other programs that infer shapes or count the work of a model, as stage 02 does."""

from __future__ import annotations

import sys
from pathlib import Path

# Each takes the model's path as its argument.
PEERS = {
    # ONNX's own shape inference: load the weights, infer every shape. It counts no work.
    "onnx": "import onnx, sys; onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1]), data_prop=True)",
    # The counter behind onnxsim's table: MACs, parameters, memory access. It simplifies nothing here.
    "onnxsim": "import onnx, sys; from onnxsim.model_info import ModelInfo; ModelInfo(onnx.load(sys.argv[1])).macs",
    "onnx-tool": "import onnx_tool, sys; onnx_tool.model_profile(sys.argv[1])",
}


def command(peer: str, model: Path) -> list[str]:
    return [sys.executable, "-c", PEERS[peer], str(model)]
