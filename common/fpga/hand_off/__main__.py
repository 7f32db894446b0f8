"""Pack the weights, constants, programs and stimuli of a quantized model (QDQ) for the kernels of a hand-off.

python -m common.fpga.hand_off HAND_OFF MODEL DATA [SAMPLES.npz]

DATA is a new folder. The model's batch becomes 1. The stimuli are the first sample of each input, or seeded random
numbers. Printed are the calls of the host program, and how many calls of the plan are packed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from common.fpga.hand_off.packing import PackedCall, data_files, packed_steps, ports_of
from common.fpga.rtl.engine.reading.layers import layers_of, of_one_sample
from common.graphs.number_formats import PRECISION_BITS
from common.graphs.operators import CONTRACTIONS, QUANTIZE
from common.messages.errors import CommandLineError, PipelineError

ARGUMENTS = (4, 5)
AGAIN = "write the hand-off again"


def main() -> int:
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
    print(f"{sum(map(bool, steps))} of {len(steps)} calls of the plan are packed")
    return 0


def _packed(hand_off: Path, path: Path, samples: Path | None) -> tuple[list[list[PackedCall]], dict[str, bytes]]:
    """Return the packed calls of each call of the schedule, and the content of the files."""
    specifications, schedule = _documents(hand_off)
    try:
        model = of_one_sample(onnx.load(path))
    except Exception as error:  # protobuf raises what it likes
        raise PipelineError(path, "is no ONNX model") from error
    network = layers_of(model)
    contractions = {node.name or node.output[0] for node in model.graph.node if node.op_type in CONTRACTIONS}
    layers = {layer.node: layer for layer in network.layers if layer.weights is not None and layer.node in contractions}
    steps = list(packed_steps(specifications, schedule, layers))
    entries = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == QUANTIZE}
    shapes = {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in model.graph.input}
    read = {each.name: shapes[entries[each.name]] for each in network.inputs}
    given = _of_samples(samples, {entries[name]: shape for name, shape in read.items()}) if samples else {}
    inputs = {
        each.name: each.quantized(
            given[entries[each.name]] if given else np.random.default_rng(0).standard_normal(read[each.name])
        )
        for each in network.inputs
    }
    return steps, data_files(specifications, [call for step in steps for call in step], network, inputs)


def _documents(hand_off: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the content of every ``K*.json`` and of ``schedule.json``, which have all that is read of them."""
    specifications = []
    for path in sorted(hand_off.glob("K*.json")):
        specifications.append(document := _document(path, KERNEL))
        if not document["units"]:
            raise PipelineError(path, "has no unit", AGAIN)
        if document["engine_kind"] == "systolic":
            _require(path, document, ARRAY)
            if len({port.bits for port in ports_of(document)}) != 1:
                raise PipelineError(path, "its first unit has no ports of one width", AGAIN)
    path = hand_off / "schedule.json"
    schedule = _document(path, {"steps": [{"activity": TEXT}]})
    for number, step in enumerate(schedule["steps"]):
        if step["activity"] == "call":
            _require(path, step, CALLED, f"steps[{number}]")
    return specifications, schedule


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value of a document is, in words, and whether one is of that kind."""

    words: str
    fits: Callable[[Any], bool]


def _up_to(most: int) -> Kind:
    return Kind(f"a whole number from 1 to {most:,}", lambda value: type(value) is int and 1 <= value <= most)


def _one_of(*values: object) -> Kind:
    words = f"{', '.join(map(str, values[:-1]))} or {values[-1]}"
    return Kind(words, lambda value: (type(value), value) in [(type(each), each) for each in values])


TRUTH = Kind("a truth value", lambda value: isinstance(value, bool))
TEXT = Kind("a text of one line", lambda value: isinstance(value, str) and value.isprintable())
NAME = Kind("a name", lambda value: isinstance(value, str) and re.fullmatch(r"\w+", value) is not None)
WIDTH = _one_of(8, 16, 32, 64, 128, 256, 512, 1024)
SIZE, TILE = _up_to(2**12), _up_to(2**20)

# What is read of a document: its keys with the kinds of their values, in objects and in each item of lists.
PORT = {"unit": NAME, "port": NAME, "memory": TEXT, "width_bits": WIDTH}
KERNEL = {
    "kernel": NAME,
    "design": NAME,
    "engine_kind": TEXT,
    "precision": _one_of(*PRECISION_BITS),
    "ports": [PORT],
    "units": [{"unit": NAME}],
}
ARRAY = {
    "sizes": {"rows": SIZE, "columns": SIZE, "products_per_element": SIZE},
    "tile": {"rows": TILE, "columns": TILE, "depth": TILE},
    "calls": [{"candidate": NAME, "products": [{"is_transposed": TRUTH, "outer_loop": _one_of("rows", "columns")}]}],
}
CALLED = {"kernel": NAME, "candidate": NAME, "source_nodes": [TEXT]}


def _require(path: Path, value: object, shape: object, place: str = "") -> None:
    """Refuse a document in which something of a shape is missing or is of another kind."""
    if isinstance(shape, Kind):
        if not shape.fits(value):
            raise PipelineError(path, f"{place} is not {shape.words}", AGAIN)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise PipelineError(path, f"{place} is no list", AGAIN)
        for number, each in enumerate(value):
            _require(path, each, shape[0], f"{place}[{number}]")
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            raise PipelineError(path, f"{place} is no object", AGAIN)
        for key, of_key in shape.items():
            inner = f"{place}.{key}" if place else key
            if key not in value:
                raise PipelineError(path, f"has no {inner}", AGAIN)
            _require(path, value[key], of_key, inner)


def _document(path: Path, shape: Mapping[str, object]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PipelineError(path, f"is no JSON ({error})", AGAIN) from error
    if not isinstance(content, dict):
        raise PipelineError(path, "holds no JSON object", AGAIN)
    _require(path, content, shape)
    return content


def _of_samples(path: Path, shapes: Mapping[str, list[int]]) -> Mapping[str, NDArray[np.float32]]:
    """Return the first sample of each input, whose shape has a batch of one."""
    with path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name][:1].astype(np.float32) for name in shapes if name in archive.files}
        except Exception as error:  # numpy takes the header for Python, so a broken one may raise anything
            raise PipelineError(path, "is no archive of arrays", "give a .npz file") from error
    for name, shape in shapes.items():
        if name not in arrays:
            raise PipelineError(path, f"has no samples of {name}")
        if [*arrays[name].shape] != shape:
            found = f"has samples of {name} of {[*arrays[name].shape[1:]]}"
            raise PipelineError(path, f"{found}, and the model reads {shape[1:]}")
        if not np.isfinite(arrays[name]).all():
            raise PipelineError(path, f"has samples of {name} that are not finite")
    return arrays


if __name__ == "__main__":
    sys.exit(main())
