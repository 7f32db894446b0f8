"""The outputs of a quantized network (QDQ) as the engine in Verilog computes it, without the Verilog."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from common.fpga.rtl.engine.arithmetic import tensors_of
from common.fpga.rtl.engine.network import EngineNetwork
from common.fpga.rtl.engine.reading.layers import layers_of, of_one_sample
from common.messages.errors import PipelineError
from common.precision.judgement.samples import Samples
from common.runtime.inputs.values import Array, Feeds
from common.runtime.sessions.session import SessionSettings


def engine_outputs(target: Path, samples: Samples, _: SessionSettings) -> dict[str, Array]:
    """Return the outputs of a model on all samples, as floats by name.

    Raises:
        PipelineError: the model has an operator, or an arrangement of operators, that the engine does not compute.
    """
    model = of_one_sample(onnx.load(target))
    try:
        network = layers_of(model)
    except PipelineError as error:
        raise PipelineError(target, f"the engine does not compute it ({error})") from error
    runs = [_run(model, network, feeds) for feeds in samples.feeds]
    return {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}


def _run(model: onnx.ModelProto, network: EngineNetwork, feeds: Feeds) -> dict[str, Array]:
    entries = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    inputs = {
        each.name: np.stack([each.quantized(sample[None]) for sample in feeds[entries[each.name]]])
        for each in network.inputs
    }
    tensors = tensors_of(network, inputs)
    outputs = {}
    for value, each in zip(model.graph.output, network.outputs, strict=True):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        whole = np.concatenate([each.restored(sample, shape) for sample in tensors[each.name]]).astype(np.int32)
        outputs[value.name] = (whole - each.zero).astype(np.float32) * each.scale
    return outputs
