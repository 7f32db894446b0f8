"""Reader of what TensorFlow Lite's ``benchmark_model --enable_op_profiling=true`` prints.

After ``Operator-wise Profiling Info for Regular Benchmark Runs:``, the part ``Run Order`` has a row per operator:
``[node type] [start] [first] [avg ms] [%] [cdf%] [mem KB] [times called] [Name]``, with tabs between. Newer versions
have no ``[start]``. ``[avg ms]`` is the mean over calls, of which a run makes ``[times called]``. ``[Name]`` lists the
tensors that the operator writes, and its index: ``[MobilenetV1/Relu6]:12``. A tensor into which several operations were
fused has all their names, with semicolons between. Operators within a delegate have names of the delegate's, such as
``Delegate/Convolution (NHWC, QU8) GEMM:3``, which no model knows. A log may have a time before each line. The forms are
those of logs of 2018 to 2024 (README of TensorFlow's tool, deeplabv3_tflite_for_nnapi_delegate, Arm's Total Compute).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.foreign_traces.layers import Layer, LayerProfile, uniquely_named
from common.messages.errors import PipelineError
from common.messages.names import quoted
from common.npu.source_file import read_text

WHAT = "what benchmark_model of TensorFlow Lite printed when it profiled operators"
MOST_BYTES = 100_000_000
RUNS = "Operator-wise Profiling Info"  # the part before it is of the start-up
ORDER = "= Run Order ="
HEADINGS = ("[node type]", "[avg ms]", "[%]", "[times called]", "[Name]")
PERCENT_TOLERANCE = 1.0  # a share has three decimals, and the shares of a thousand rows are rounded
DTYPES = {"F32": "float32", "F16": "float16", "QS8": "int8", "QC8": "int8", "QU8": "uint8"}  # of XNNPACK's operators
_COUNT = re.compile(r"Timings \(microseconds\): count=(\d{1,12})")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,12})?")
_INDEX = re.compile(r":\d+$")
_PRECISION = re.compile(r"\([A-Z]+, ([A-Z]+\d+)\)")


def read_tflite_profile(path: Path) -> LayerProfile:
    """Read a log.

    Raises:
        PipelineError: the file cannot be read, is of another kind or incomplete, or the times do not add up.
    """
    lines = read_text(path, MOST_BYTES, WHAT).split("\n")
    begin = max((place for place, line in enumerate(lines) if RUNS in line), default=0)
    start = next((place for place in range(begin, len(lines)) if ORDER in lines[place]), None)
    if start is None or start + 1 >= len(lines):
        raise PipelineError(path, "has no part 'Run Order'", f"give {WHAT}")
    layers, shares = [], []
    for number, cells in _rows(path, lines, start + 1):
        layer, share = _layer(path, number, cells)
        layers.append(layer)
        shares.append(share)
    if not any(layer.mean_us for layer in layers):
        raise PipelineError(path, "holds no operator with a time", f"give {WHAT}")
    if abs(math.fsum(shares) - 100) > PERCENT_TOLERANCE:
        problem = f"the shares of its operators add up to {math.fsum(shares):.1f} %, not 100 %"
        raise PipelineError(path, problem, "rows are lost: print it again")
    counts = (_COUNT.search(line) for line in lines[start:])
    count = next((int(found[1]) for found in counts if found), None)
    return LayerProfile("TensorFlow Lite", "tflite", uniquely_named(layers), count or None)


def _rows(path: Path, lines: Sequence[str], header: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the cells of each row up to an empty line."""
    names = [name.strip() for name in lines[header].split("\t")]
    if any(name not in names for name in HEADINGS) or names[-1] != "[Name]":
        raise PipelineError(path, f"line {header + 1} is no heading of operators", f"give {WHAT}")
    places = {name: names.index(name) for name in HEADINGS}
    for number, line in enumerate(lines[header + 1 :], start=header + 2):
        cells = line.split("\t")
        if not line.strip() or "=====" in line or line.strip() == "```":
            return
        if len(cells) != len(names):
            raise PipelineError(path, f"line {number} is no row of an operator: {quoted(line.strip())}", f"give {WHAT}")
        yield number, {name: cells[place].strip() for name, place in places.items()}


def _layer(path: Path, number: int, cells: dict[str, str]) -> tuple[Layer, float]:
    """Return an operator, and its share of the time in percent."""
    figures = [cells["[avg ms]"], cells["[times called]"], cells["[%]"].removesuffix("%")]
    if not all(_NUMBER.fullmatch(figure) for figure in figures):
        raise PipelineError(path, f"line {number} has {quoted(' '.join(figures))} as figures", "print it again")
    average_ms, calls, percent = map(float, figures)
    name, op_type = cells["[Name]"], cells["[node type]"]
    precision = _PRECISION.search(op_type)
    return Layer(
        name or op_type,
        op_type,
        tuple((tensor, f"{tensor}:0") for tensor in tensors_of(name)),  # converters keep or drop the output's number
        mean_us=1e3 * average_ms * max(1.0, calls),
        dtype=DTYPES.get(precision[1], "") if precision else "",
    ), percent


def tensors_of(name: str) -> list[str]:
    """Return the names of the tensors, and of what was fused into them, that a name of an operator lists."""
    bare = _INDEX.sub("", name)
    listed = bare[1:-1].split(", ") if bare.startswith("[") and bare.endswith("]") else [name]
    return [part for tensor in listed for part in tensor.split(";") if part]
