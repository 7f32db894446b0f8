"""Reader of what TensorFlow Lite's ``benchmark_model --enable_op_profiling=true`` prints.

After ``Operator-wise Profiling Info for Regular Benchmark Runs:``, the part ``Run Order`` has a row per operator:
``[node type] [start] [first] [avg ms] [%] [cdf%] [mem KB] [times called] [Name]``, with tabs between, or with spaces
where the log was copied from a terminal. Newer versions have no ``[start]``. ``[avg ms]`` is the mean over calls, of
which a run makes ``[times called]``: less than half a call on average is 0 there, as of an operator that ran in the
first run alone. ``[Name]`` lists the tensors that the operator writes, and its index: ``[MobilenetV1/Relu6]:12``. A
tensor into which several operations were fused has all their names, with semicolons between. Operators within a
delegate have names of the delegate's, such as ``Delegate/Convolution (NHWC, QU8) GEMM:3``, which no model knows. A log
may have a time before each line. The forms are those of logs of 2018 to 2025 (README of TensorFlow's tool,
deeplabv3_tflite_for_nnapi_delegate, Arm's Total Compute and its learning path on KleidiAI with LiteRT).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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
_PRECISION = re.compile(r"\([A-Z]+, P?([A-Z]+\d+)[,)]")  # the first of several is the input's; P: packed by KleidiAI
_SPACES = re.compile(r" {2,}")


class _Operator(NamedTuple):
    """A row: the layer without its time, the mean of its calls, the calls of a run, and its share of the time."""

    layer: Layer
    average_us: float
    calls: float
    percent: float


def read_tflite_profile(path: Path) -> LayerProfile:
    """Read a log; refuse a file of another kind, that is incomplete, or whose times do not add up."""
    lines = read_text(path, MOST_BYTES, WHAT).split("\n")
    begin = max((place for place, line in enumerate(lines) if RUNS in line), default=0)
    start = next((place for place in range(begin, len(lines)) if ORDER in lines[place]), None)
    if start is None or start + 1 >= len(lines):
        raise PipelineError(path, "has no part 'Run Order'", f"give {WHAT}")
    operators = [_operator(path, number, cells) for number, cells in _rows(path, lines, start + 1)]
    layers, shares = _layers(operators), [operator.percent for operator in operators]
    if not any(layer.mean_us for layer in layers):
        raise PipelineError(path, "holds no operator with a time", f"give {WHAT}")
    if abs(math.fsum(shares) - 100) > PERCENT_TOLERANCE:
        problem = f"the shares of its operators add up to {math.fsum(shares):.1f} %, not 100 %"
        raise PipelineError(path, problem, "rows are lost: print it again")
    counts = (_COUNT.search(line) for line in lines[start:])
    count = next((int(found[1]) for found in counts if found), None)
    return LayerProfile("TensorFlow Lite", "tflite", layers, count or None)


def _rows(path: Path, lines: Sequence[str], header: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the cells of each row up to an empty line, which may have a time in a log of Android."""
    names = _cells(lines[header])
    if any(name not in names for name in HEADINGS) or names[-1] != "[Name]":
        raise PipelineError(path, f"line {header + 1} is no heading of operators", f"give {WHAT}")
    places = {name: names.index(name) for name in HEADINGS}
    for number, line in enumerate(lines[header + 1 :], start=header + 2):
        cells = _cells(line)
        is_empty = not line.strip() or ("\t" in lines[header] and "\t" not in line)
        if is_empty or "=====" in line or line.strip() == "```":
            return
        if len(cells) != len(names):
            raise PipelineError(path, f"line {number} is no row of an operator: {quoted(line.strip())}", f"give {WHAT}")
        yield number, {name: cells[place] for name, place in places.items()}


def _cells(line: str) -> list[str]:
    cells = line.split("\t") if "\t" in line else _SPACES.split(line.strip())
    return [cell.strip() for cell in cells]


def _operator(path: Path, number: int, cells: dict[str, str]) -> _Operator:
    figures = [cells["[avg ms]"], cells["[times called]"], cells["[%]"].removesuffix("%")]
    if not all(_NUMBER.fullmatch(figure) for figure in figures):
        raise PipelineError(path, f"line {number} has {quoted(' '.join(figures))} as figures", "print it again")
    average_ms, calls, percent = map(float, figures)
    name, op_type = cells["[Name]"], cells["[node type]"]
    precision = _PRECISION.search(op_type)
    layer = Layer(
        name or op_type,
        op_type,
        tuple((tensor, f"{tensor}:0") for tensor in tensors_of(name)),  # converters keep or drop the output's number
        dtype=DTYPES.get(precision[1], "") if precision else "",
    )
    return _Operator(layer, 1e3 * average_ms, calls, percent)


def _layers(operators: Sequence[_Operator]) -> tuple[Layer, ...]:
    """Return the layers with their times in a run; that of an operator with 0 calls follows from its share.

    Logs of 2018 have 0 calls everywhere, and one call of each operator in a run.
    """
    if not any(operator.calls for operator in operators):
        operators = [operator._replace(calls=1.0) for operator in operators]
    run_us = math.fsum(operator.average_us * operator.calls for operator in operators)
    called = math.fsum(operator.percent for operator in operators if operator.calls)
    times = (
        operator.average_us * operator.calls if operator.calls or not called else run_us * operator.percent / called
        for operator in operators
    )
    return uniquely_named(replace(operator.layer, mean_us=us) for operator, us in zip(operators, times, strict=True))


def tensors_of(name: str) -> list[str]:
    """Return the names of the tensors, and of what was fused into them, that a name of an operator lists."""
    bare = _INDEX.sub("", name)
    listed = bare[1:-1].split(", ") if bare.startswith("[") and bare.endswith("]") else [name]
    return [part for tensor in listed for part in tensor.split(";") if part]
