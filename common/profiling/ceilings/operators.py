"""Operators that the ceilings are measured with, each as a small model."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, IR_VERSION = 13, 8
SIDE = 1024  # side of a product's operands: 4 MiB each in float32, as in a large layer
CHANNELS, IMAGE, CHAIN = 256, 28, 4  # a chain of convolutions, so that the layout changes only at its two ends
STREAM_OPERANDS = 3  # two reads and one write; reading a line before it is overwritten is not compulsory traffic
RESIDENT_CHAIN = 64  # additions in a run: starting a run takes as long as one addition
MEMORY, CACHE, FP32, INT8 = "memory", "cache", "fp32", "int8"
HALF_FORMATS = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
INPUT, WEIGHT, ZERO_POINT, SCALE = 3, 127, 3, 0.01  # bytes and their scale; rates do not depend on them
QUANTIZED_OPERANDS = ("xs", "xz", "w", "ws", "wz", "xs", "xz")
X86 = ("x86_64", "amd64")
Shape = tuple[int, ...]
Array = npt.NDArray[Any]
Constants = dict[str, Array]  # by the name of the operand
Dtype = np.dtype[Any]
FLOAT, BYTE, WIDE = np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.int32)


@dataclass(frozen=True, slots=True)
class Operator:
    """A model with inputs ``x0``, ``x1`` … of one shape and ``kind``, and the output ``y`` of the same shape."""

    roof: str  # the ceiling that its rate measures
    op_type: str
    label: str
    amount: float  # FLOPs, operations or bytes of one run
    model: bytes
    shape: Shape
    kind: Dtype = FLOAT
    output: Dtype = FLOAT  # element type of the output
    input_count: int = 1

    @property
    def operand_bytes(self) -> int:
        return math.prod(self.shape) * self.kind.itemsize

    def operand(self) -> Array:
        """Make an input without zeros and denormals."""
        return np.full(self.shape, INPUT if np.issubdtype(self.kind, np.integer) else 0.5, self.kind)


def quantized_activation() -> Dtype:
    """Return the type that an int8 activation has when it runs.

    The quantizers make signed weights. The dynamic quantizer makes unsigned activations. On x86 the runtime also turns
    the signed activations of the static quantizer into unsigned ones, because x86 multiplies unsigned by signed bytes.
    """
    return np.dtype(np.uint8 if platform.machine().lower() in X86 else np.int8)


def matmul(side: int, roof: str = FP32) -> Operator:
    """Make a square product with a constant right operand, in a 16-bit format or in float32: 2·side³ FLOPs."""
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(HALF_FORMATS.get(roof, TensorProto.FLOAT)))
    return _product("MatMul", roof, side, {"w": _weights((side, side), kind)}, kind, kind)


def gemm(side: int) -> Operator:
    """Make a fully connected layer with transposed weights and a bias: 2·side³ FLOPs without the bias."""
    return _product("Gemm", FP32, side, {"w": _weights((side, side)), "b": _weights((side,))}, transB=1)


def matmul_integer(side: int) -> Operator:
    """Make a product of bytes into 32 bits, as in dynamic quantization: 2·side³ operations."""
    return _product("MatMulInteger", INT8, side, {"w": _weights((side, side), BYTE)}, quantized_activation(), WIDE)


def qlinear_matmul(side: int) -> Operator:
    """Make a product of bytes into bytes, as in static quantization: 2·side³ operations without scaling."""
    kind = quantized_activation()
    return _product("QLinearMatMul", INT8, side, _quantized((side, side), kind), kind, kind)


def conv(channels: int, kernel: int) -> Operator:
    """Make a chain of convolutions that keep the shape: 2·kernel²·channels²·pixels FLOPs each, borders included."""
    return _convolutions("Conv", FP32, kernel, {"w": _weights((channels, channels, kernel, kernel))}, FLOAT)


def qlinear_conv(channels: int, kernel: int) -> Operator:
    """Make the chain of convolutions in bytes; scaling is not counted."""
    kind = quantized_activation()
    return _convolutions("QLinearConv", INT8, kernel, _quantized((channels, channels, kernel, kernel), kind), kind)


def add(size: int, roof: str = MEMORY, chain: int = 1) -> Operator:
    """Make a chain of additions, each of which reads two arrays of ``size`` bytes and writes a third."""
    shape = (size // FLOAT.itemsize,)
    nodes = [helper.make_node("Add", [read, "x1"], [written]) for read, written in pairwise(_chain_names(chain))]
    text = f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
    label, moved = f"Add {roof}, 3 arrays of {text}", float(STREAM_OPERANDS * size * chain)
    return Operator(roof, "Add", label, moved, _model(nodes, shape, {}, input_count=2), shape, input_count=2)


def _product(
    op_type: str,
    roof: str,
    side: int,
    constants: Constants,
    kind: Dtype = FLOAT,
    output: Dtype = FLOAT,
    **attributes: Any,
) -> Operator:
    shape, label = (side, side), f"{op_type} {roof}, {side}×{side}×{side}"
    node = helper.make_node(op_type, ["x0", *_operands(constants)], ["y"], **attributes)
    model = _model([node], shape, constants, kind, output)
    return Operator(roof, op_type, label, 2.0 * side**3, model, shape, kind, output)


def _convolutions(op_type: str, roof: str, kernel: int, constants: Constants, kind: Dtype) -> Operator:
    channels, operands, pads = len(constants["w"]), _operands(constants), [kernel // 2] * 4
    shape, label = (1, channels, IMAGE, IMAGE), f"{kernel}×{kernel}, {channels} channels of {IMAGE}×{IMAGE}"
    nodes = [
        helper.make_node(op_type, [read, *operands], [written], pads=pads)
        for read, written in pairwise(_chain_names(CHAIN))
    ]
    amount = 2.0 * CHAIN * kernel**2 * channels**2 * IMAGE**2
    model = _model(nodes, shape, constants, kind, kind)
    return Operator(roof, op_type, f"{op_type} {roof}, {label}", amount, model, shape, kind, kind)


def _operands(constants: Constants) -> Sequence[str]:
    """Return the operands behind the first one: the constants, with a scale and a zero point behind each in bytes."""
    return QUANTIZED_OPERANDS if "ws" in constants else [*constants]


def _chain_names(length: int) -> list[str]:
    return ["x0", *(f"h{step}" for step in range(1, length)), "y"]


def _weights(shape: Shape, kind: Dtype = FLOAT) -> Array:
    """Draw seeded weights; floats have variance 1 / fan-in, so that nothing overflows."""
    random = np.random.default_rng(0)
    if np.issubdtype(kind, np.integer):
        return random.integers(-WEIGHT, WEIGHT + 1, shape, dtype=kind)
    return (random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))).astype(kind)


def _quantized(shape: Shape, kind: Dtype) -> Constants:
    """Return weights in bytes with the scales and zero points of weights and activations."""
    scale, zero = np.array(SCALE, FLOAT), np.array(0, BYTE)
    return {"w": _weights(shape, BYTE), "xs": scale, "ws": scale, "xz": np.array(ZERO_POINT, kind), "wz": zero}


def _model(
    nodes: list[NodeProto],
    shape: Shape,
    constants: Constants,
    kind: Dtype = FLOAT,
    output: Dtype = FLOAT,
    input_count: int = 1,
) -> bytes:
    takes = [_value(f"x{index}", shape, kind) for index in range(input_count)]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "ceiling", takes, [_value("y", shape, output)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    return bytes(model.SerializeToString())


def _value(name: str, shape: Shape, kind: Dtype) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)
