"""Pack the weights, constants, programs and stimuli of a quantized model (QDQ) for the kernels of a hand-off.

python -m common.fpga.hand_off HAND_OFF MODEL DATA [SAMPLES.npz]

DATA is a new folder. The stimuli are those of the first sample of the model's inputs, or of seeded random numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from common.fpga.hand_off.packing import PackedCall, data_files, packed_steps
from common.fpga.rtl.engine.network import LEAST, MOST, UNSIGNED_MOVE, Bytes, EngineTensor
from common.fpga.rtl.engine.reading.layers import layers_of
from common.graphs.operators import CONTRACTIONS
from common.messages.errors import CommandLineError, PipelineError

ARGUMENTS = (4, 5)


def main() -> int:
    """Write the data, and print how much there is."""
    try:
        if len(sys.argv) not in ARGUMENTS:
            raise CommandLineError("command line", "takes three or four arguments", "see the docstring")
        hand_off, model, data = map(Path, sys.argv[1:4])
        steps, files = _packed(hand_off, model, Path(sys.argv[4]) if len(sys.argv) == ARGUMENTS[1] else None)
        data.mkdir(parents=True)
        for name, content in files.items():
            (data / name).write_bytes(content)
    except PipelineError as error:
        print(f"python -m common.fpga.hand_off: error: {error}".replace("<hand_off>", sys.argv[1]), file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"python -m common.fpga.hand_off: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    calls = sum(line.startswith("call ") for line in files["manifest.txt"].decode().splitlines())
    print(f"{calls} calls, {sum(map(len, files.values())):,} bytes in {len(files)} files")
    print(f"{sum(map(bool, steps))} of {len(steps)} calls are packed")
    return 0


def _packed(hand_off: Path, path: Path, samples: Path | None) -> tuple[list[list[PackedCall]], dict[str, bytes]]:
    """Return the packed calls of each call of the schedule, and the content of the files."""
    texts = [each.read_text(encoding="utf-8") for each in sorted(hand_off.glob("K*.json"))]
    schedule = json.loads((hand_off / "schedule.json").read_text(encoding="utf-8"))
    try:
        model = onnx.shape_inference.infer_shapes(onnx.load(path))
    except Exception as error:  # protobuf raises what it likes
        raise PipelineError(path, "is no ONNX model") from error
    network = layers_of(model)
    contractions = {node.name or node.output[0] for node in model.graph.node if node.op_type in CONTRACTIONS}
    layers = {layer.node: layer for layer in network.layers if layer.weights is not None and layer.node in contractions}
    specifications = [json.loads(text) for text in texts]
    steps = list(packed_steps(specifications, schedule, layers))
    names = [each.name for each in model.graph.input]
    feeds = _of_samples(samples, names) if samples else {}
    inputs = {
        tensor.name: _quantized(tensor, feeds.get(name)) for tensor, name in zip(network.inputs, names, strict=True)
    }
    return steps, data_files(specifications, [call for step in steps for call in step], network, inputs)


def _of_samples(path: Path, names: list[str]) -> Mapping[str, NDArray[np.float32]]:
    with np.load(path, allow_pickle=False) as samples:
        missing = [name for name in names if name not in samples.files]
        if missing:
            raise PipelineError(path, f"has no samples of {missing[0]}")
        return {name: samples[name][:1].astype(np.float32) for name in names}


def _quantized(tensor: EngineTensor, values: NDArray[np.float32] | None) -> Bytes:
    """Return a map (channels, height, width) as QuantizeLinear makes it."""
    shape = (tensor.channels, tensor.height, tensor.width)
    given = np.random.default_rng(0).standard_normal(shape) if values is None else tensor.arranged(values)
    move = UNSIGNED_MOVE if tensor.is_unsigned else 0
    whole = np.rint(given / tensor.scale) + tensor.zero + move
    quantized: Bytes = np.clip(whole - move, LEAST, MOST).astype(np.int8)
    return quantized


if __name__ == "__main__":
    sys.exit(main())
