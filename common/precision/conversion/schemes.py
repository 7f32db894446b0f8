"""Schemes that convert a model to a number format, by ONNX Runtime's own tools where it has one.

*In integers*, the operands of each contraction are rounded: weights symmetrically, per output channel or per tensor,
activations with a zero point and the range that calibration found. Products are summed exactly. The operators after a
contraction compute in float until the next contraction rounds its operands. An engine that requantizes after its fused
operators does the same. *Whole network*: every tensor is rounded, also what is added and pooled, and the outputs are
those of the engine in Verilog, bit by bit (docs/BUILD.md). *Smoothed*: first, outliers of the activations of linear
layers move into the weights. ONNX Runtime leaves that to a package with twenty dependencies. *Weights only*: 4 bits in
blocks of 32, products in float.

*In fp16 and bf16*, operands of contractions are rounded, and sums are in float32 (Kalamkar et al. 2019,
arXiv:1905.12322). The runtime has no tool for bf16. Its tool for fp16 converts the whole model. On the CPU, the runtime
then computes in float32 and leaves out most roundings, so that scheme says nothing about a board.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import onnx
from onnx import TensorProto, helper

from common.precision.conversion.calibration import Calibration
from common.precision.conversion.float_model import QUANTIZED, FloatModel, write_single
from common.precision.conversion.smoothing import has_linear_layers
from common.precision.judgement.evaluation import engine_outputs, outputs_of
from common.precision.judgement.samples import Samples
from common.runtime.inputs.values import Array
from common.runtime.sessions.session import SessionSettings

Outputs = Callable[[Path, Samples, SessionSettings], dict[str, Array]]
Method = Literal["MinMax", "Percentile", "Entropy"]
BLOCK = 32
ENGINE_FORMAT, ON_ENGINE = "int8", "whole network, on the engine"


@dataclass(frozen=True, slots=True)
class Scheme:
    """One scheme."""

    number_format: str  # as plans name it
    name: str  # what distinguishes it from other schemes for the same format
    # Takes the calibration of a prepared model, the nodes to convert and the target, and writes the model
    make: Callable[[Calibration, Sequence[str], Path], None]
    activations: bool = True  # whether activations have the format, too, so that a board could compute in it
    # Whether the tool converts every given node; if not, it converts only those that it knows
    converts_all: bool = False
    is_handed_on: bool = True  # whether its model may become the one that other stages take
    is_for: Callable[[FloatModel], bool] = lambda model: True  # whether the scheme is one of its own for a model
    # Runs a written model on samples, and returns its float outputs; as ONNX Runtime, or as the engine
    outputs_of: Outputs = outputs_of


def _static(
    element_type: str,
    method: Method,
    calibration: Calibration,
    nodes: Sequence[str],
    target: Path,
    *,
    per_channel: bool = True,
) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_static

    quantize_static(
        calibration.model.path,
        target,
        op_types_to_quantize=[*QUANTIZED],
        nodes_to_quantize=[*nodes],
        per_channel=per_channel,
        activation_type=QuantType[element_type],
        weight_type=QuantType[element_type],
        calibrate_method=CalibrationMethod[method],
        calibration_cache_path=calibration.ranges(method),
        extra_options={"OpTypesToExcludeOutputQuantization": [*QUANTIZED]},
    )


def _whole(calibration: Calibration, _: Sequence[str], target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_static

    single = target.with_suffix(".single.onnx")  # as the engine takes it: one sample after the other
    write_single(calibration.model, single)
    quantize_static(
        single,
        target,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        calibration_cache_path=calibration.ranges("MinMax", op_types=None),
    )


def _smoothed(calibration: Calibration, nodes: Sequence[str], target: Path) -> None:
    _static("QInt8", "MinMax", calibration.smoothed(), nodes, target)


def _blocks(calibration: Calibration, nodes: Sequence[str], target: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    model = calibration.model
    others = [name for name in model.nodes if name not in nodes]
    quantizer = MatMulNBitsQuantizer(model.proto(), block_size=BLOCK, nodes_to_exclude=others)
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def _half(calibration: Calibration, nodes: Sequence[str], target: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = calibration.model
    others = [name for name in model.nodes if name not in nodes]
    onnx.save(convert_float_to_float16(model.proto(), keep_io_types=True, node_block_list=others), target)


def _operands(element_type: int, calibration: Calibration, nodes: Sequence[str], target: Path) -> None:
    """Round the operands of some nodes, including weights and biases.

    Products and their sums stay in float32, as in engines with a wide accumulator.

    Args:
        element_type: of ``TensorProto``, such as BFLOAT16. The runtime rounds to the nearest, ties to even.
        nodes: names; their operands are floats, or absent.
    """
    proto, chosen, rounded = calibration.model.proto(), {*nodes}, dict[str, str]()
    placed: list[onnx.NodeProto] = []
    for node in [*proto.graph.node]:
        for place, name in enumerate(node.input if node.name in chosen else ()):
            if name and name not in rounded:
                short, rounded[name] = f"{name}/short", f"{name}/rounded"
                placed.append(helper.make_node("Cast", [name], [short], f"{name}/shorten", to=element_type))
                placed.append(helper.make_node("Cast", [short], [rounded[name]], f"{name}/widen", to=TensorProto.FLOAT))
            node.input[place] = rounded.get(name, name)
        placed.append(node)
    proto.graph.ClearField("node")
    proto.graph.node.extend(placed)
    onnx.save(proto, target)


SCHEMES = (
    Scheme("fp16", "operands", partial(_operands, TensorProto.FLOAT16), converts_all=True, is_handed_on=False),
    Scheme("fp16", "whole model", _half, activations=False, converts_all=True),
    Scheme("bf16", "operands", partial(_operands, TensorProto.BFLOAT16), converts_all=True),
    Scheme("int16", "per channel, min-max", partial(_static, "QInt16", "MinMax")),
    Scheme("int8", "per channel, min-max", partial(_static, "QInt8", "MinMax")),
    Scheme("int8", "per channel, percentile", partial(_static, "QInt8", "Percentile")),
    Scheme("int8", "per channel, entropy", partial(_static, "QInt8", "Entropy")),
    Scheme("int8", "per channel, smoothed", _smoothed, is_for=has_linear_layers),
    Scheme("int8", "per tensor, min-max", partial(_static, "QInt8", "MinMax", per_channel=False)),
    Scheme(ENGINE_FORMAT, ON_ENGINE, _whole, is_handed_on=False, outputs_of=engine_outputs),
    Scheme("int4", "per channel, min-max", partial(_static, "QInt4", "MinMax")),
    Scheme("int4", "per channel, percentile", partial(_static, "QInt4", "Percentile")),
    Scheme("int4", "weights in blocks of 32", _blocks, activations=False, is_handed_on=False),
)
FORMATS = tuple(dict.fromkeys(scheme.number_format for scheme in SCHEMES))
