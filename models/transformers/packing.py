"""Weights of products in four bits: each block of a column has a scale, as MatMulNBits of ONNX Runtime reads them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"
BITS, BLOCK, ZERO = 4, 32, 8  # without zero points, 8 stands for 0


def packed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each product of an activation and a weight of two axes is a MatMulNBits."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or len(weight.dims) != 2:
            continue
        codes, scales = quantized(numpy_helper.to_array(weight))
        inner, columns = weight.dims
        names = [f"{weight.name}_q4", f"{weight.name}_scales"]
        model.graph.initializer.remove(weight)
        model.graph.initializer.append(numpy_helper.from_array(codes, names[0]))
        model.graph.initializer.append(numpy_helper.from_array(scales, names[1]))
        sizes = {"K": inner, "N": columns, "bits": BITS, "block_size": BLOCK}
        node.CopyFrom(
            helper.make_node(
                "MatMulNBits", [node.input[0], *names], [*node.output], node.name, domain=MICROSOFT, **sizes
            )
        )
    if MICROSOFT not in [opset.domain for opset in model.opset_import]:
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


def quantized(weight: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Quantize (K, N) in blocks of K: codes of (N, blocks, 16 bytes), low half first, and scales of (N · blocks)."""
    inner, columns = weight.shape
    blocks = -(-inner // BLOCK)
    whole = np.zeros((columns, blocks * BLOCK), np.float32)
    whole[:, :inner] = weight.T
    parts = whole.reshape(columns, blocks, BLOCK)
    scales = np.abs(parts).max(axis=2) / (ZERO - 1) + np.float32(1e-12)
    codes = np.clip(np.rint(parts / scales[:, :, None]) + ZERO, 0, 2 * ZERO - 1).astype(np.uint8)
    return codes[:, :, ::2] | codes[:, :, 1::2] << BITS, scales.reshape(-1).astype(np.float32)
