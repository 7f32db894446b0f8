"""Models as onnxruntime.quantization writes them, and models as converters that keep no names leave them."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

FORMS = ("qdq", "qoperator", "dynamic")
SAMPLES = 2
PER_CHANNEL_OPSET = 13  # the first whose DequantizeLinear has an axis


def quantize(
    model_path: Path,
    form: str,
    out_path: Path,
    *,
    dimensions: Mapping[str, int] | None = None,
    preprocess: bool = False,
) -> Path:
    """Quantize a float32 model to int8 weights and uint8 activations, and return ``out_path``.

    Dynamic dimensions of the inputs take the sizes in ``dimensions`` (3 where it names none) while calibration runs;
    the quantized model keeps them dynamic. ``preprocess`` folds constants and BatchNorm first, as the documentation of
    the runtime advises: without it the QOperator form refuses some operators.
    """
    logging.getLogger().setLevel(logging.ERROR)  # it advises preprocessing once per model
    with tempfile.TemporaryDirectory() as folder:
        source = _raised(Path(model_path), Path(folder) / "raised.onnx") if form == "qdq" else Path(model_path)
        if preprocess:
            prepared = Path(folder) / "prepared.onnx"
            quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            source = prepared
        if form == "dynamic":
            quantize_dynamic(source, out_path, per_channel=True, weight_type=QuantType.QInt8)
        else:
            quantize_static(
                source,
                out_path,
                RandomReader(onnx.load(source, load_external_data=False), dimensions or {}),
                quant_format={"qdq": QuantFormat.QDQ, "qoperator": QuantFormat.QOperator}[form],
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
    return out_path


def _raised(path: Path, raised: Path) -> Path:
    """The model at an opset that has scales per channel: the quantizer writes them without raising it."""
    model = onnx.load(path)
    version = next(entry.version for entry in model.opset_import if not entry.domain)
    if version >= PER_CHANNEL_OPSET:
        return path
    onnx.save(onnx.version_converter.convert_version(model, PER_CHANNEL_OPSET), raised)
    return raised


class RandomReader(CalibrationDataReader):
    """Seeded inputs: normal floats; whole numbers 0 and 1, valid as ids, mask and segments alike."""

    def __init__(self, model: onnx.ModelProto, dimensions: Mapping[str, int]) -> None:
        random = np.random.default_rng(11)
        self.samples: Iterator[dict[str, np.ndarray]] = iter(
            [feeds_of(model, dimensions, random) for _ in range(SAMPLES)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.samples, None)


def feeds_of(
    model: onnx.ModelProto, dimensions: Mapping[str, int], random: np.random.Generator | None = None
) -> dict[str, np.ndarray]:
    """An array for each input that is no initializer; dimensions without a size are 3, and so is an int scalar."""
    random = random or np.random.default_rng(13)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name not in weights:
            tensor = value.type.tensor_type
            shape = [dimensions.get(dim.dim_param, 3) if dim.dim_param else dim.dim_value for dim in tensor.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if np.issubdtype(dtype, np.floating):
                drawn = random.standard_normal(shape)
            else:
                drawn = random.integers(0, 2, shape) if shape else 3
            feeds[value.name] = np.asarray(drawn, dtype)
    return feeds


def strip_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """Clear every node's name in place, in nested graphs and local functions too, and return the model."""
    for graph in graphs_of(model.graph):
        for node in graph.node:
            node.ClearField("name")
    for function in model.functions:
        for node in function.node:
            node.ClearField("name")
    return model


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph inside its nodes, however deep."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from graphs_of(body)
