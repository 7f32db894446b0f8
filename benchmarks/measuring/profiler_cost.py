"""Test corrected node times against the times of unprofiled chains, operator by operator.

The oracle of an operator is the slope of unprofiled chains of k and 2k copies of it, run in turn: the median over
rounds of the difference of each pair, per copy. It needs no trace and no profiler. The figures under test come from
``measure`` and ``correct`` as stage 01 calls them, on models of two kinds:

* ``mixed``: a model with one branch per operator and a few copies in each; the operators of a model take about as long
  as each other. Tensors are small, because larger ones would be in other caches than in the oracle's chains;
* ``chain``: the chain of 2k copies itself.

The nodes at the ends of a branch differ from the oracle's copies and are left out: the first two read or write memory
in the cache state that another operator left, and the last writes the model's output. An operator's figures come from
several sweeps over oracle and models, so that a change of the processor's clock affects both. Run by hand on a quiet
machine; no test depends on it.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from common.profiling.correction import NodeLatency, correct
from common.profiling.overhead import lap_us
from common.profiling.runs.loop import Budget, SessionPlan, prepare, take_turns
from common.profiling.runs.measurement import conclude
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.threads import available_threads

# Tensors up to this stay in a core's own cache, whatever memory the runtime's planner gives to the nodes of a branch.
CACHED_BYTES = 2**19
COPIES = 6  # of an operator in a mixed model
SKIPPED = (2, 1)  # copies at the start and at the end of a branch
WARMUP = 3
RANGE_US = (2.0, 5000.0)
# Limits of the difference: µs, and fraction of the oracle; whichever is larger.
LIMITS = {True: (3.0, 0.06), False: (4.0, 0.08)}

Shape = tuple[int, ...]
Feeds = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator whose output has the shape of its first operand; the others are constants, or inputs of the model."""

    family: str
    op_type: str
    shapes: tuple[Shape, ...]
    is_constant: bool = True
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        return f"{self.family}-{'x'.join(map(str, self.shapes[0]))}"

    @property
    def constants(self) -> list[npt.NDArray[np.float32]]:
        """Constant operands that average their products, so that a chain neither overflows nor turns denormal."""
        return [np.full(shape, 1 / self.terms(shape), dtype=np.float32) for shape in self.shapes[1:]]

    @property
    def is_cached(self) -> bool:
        """Whether its tensors are small enough to be in the same cache in every model."""
        return 4 * math.prod(self.shapes[0]) <= CACHED_BYTES

    def terms(self, shape: Shape) -> int:
        """Return the number of products with a constant of this shape in one element of the output."""
        if self.op_type == "MatMul":
            return shape[0]
        return math.prod(shape[1:]) if self.op_type == "Conv" else 64


SIZES = (
    # k, elements of Relu, Add, Sigmoid, Pow, Erf; rows of Softmax, LayerNormalization; sides of MatMul, Conv 1x1, 3x3,
    # depthwise
    (16, 2**17, 2**17, 2**15, 2**9, 2**15, 64, 64, 96, 28, 8, 40),
    (16, 2**18, 2**18, 2**16, 2**11, 2**16, 128, 128, 144, 56, 12, 64),
    (16, 2**20, 2**19, 2**18, 2**13, 2**18, 512, 512, 224, 96, 28, 112),
    (8, 2**22, 2**21, 2**21, 2**16, 2**21, 2048, 2048, 384, 192, 80, 208),
    (4, 2**24, 2**22, 2**23, 2**18, 2**22, 8192, 4096, 608, 384, 160, 352),
    (4, 2**25, 2**24, 2**24, 2**19, 2**23, 16384, 8192, 768, 608, 240, 512),
)


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that take about as long as each other, and the k of their chains."""

    k: int
    operators: Sequence[Operator]


def groups() -> list[Group]:
    """Return the groups, whose operators take 5 µs to 5 ms on one core of 2024."""
    return [Group(k, family(*sides)) for k, *sides in SIZES]


def family(
    relu: int,
    add: int,
    sigmoid: int,
    power: int,
    erf: int,
    softmax: int,
    norm: int,
    side: int,
    one: int,
    three: int,
    depthwise: int,
) -> list[Operator]:
    padded = {"pads": [1, 1, 1, 1]}
    return [
        Operator("Relu", "Relu", ((1, relu),)),
        Operator("Add", "Add", ((1, add), (1, add))),
        Operator("Sigmoid", "Sigmoid", ((1, sigmoid),)),
        Operator("Pow", "Pow", ((1, power), (1,))),
        Operator("Erf", "Erf", ((1, erf),)),
        Operator("Softmax", "Softmax", ((softmax, 512),)),
        Operator("LayerNormalization", "LayerNormalization", ((norm, 768), (768,), (768,))),
        Operator("MatMul-const", "MatMul", ((side, side), (side, side))),
        Operator("MatMul-var", "MatMul", ((side, side), (side, side)), is_constant=False),
        Operator("Conv-1x1", "Conv", ((1, 32, one, one), (32, 32, 1, 1))),
        Operator("Conv-3x3", "Conv", ((1, 32, three, three), (32, 32, 3, 3)), attributes=padded),
        Operator("Conv-dw", "Conv", ((1, 32, depthwise, depthwise), (32, 1, 3, 3)), attributes={**padded, "group": 32}),
    ]


def build(branches: Iterable[tuple[Operator, int]]) -> tuple[bytes, Feeds]:
    """Serialize a model with one branch per operator and the given number of copies in each, and make its inputs."""
    inputs, outputs, nodes, constants = [], [], [], []
    feeds: Feeds = {}
    for operator, copies in branches:
        label, names = operator.label, [f"{operator.label}.c{index}" for index in range(len(operator.constants))]
        arrays = dict(zip(names, operator.constants, strict=True))
        if operator.is_constant:
            constants += [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        else:
            feeds |= arrays
            inputs += [value(name, array.shape) for name, array in arrays.items()]
        feeds[f"{label}.0"] = np.random.default_rng(0).uniform(0.5, 1.5, operator.shapes[0]).astype(np.float32)
        inputs.append(value(f"{label}.0", operator.shapes[0]))
        outputs.append(value(f"{label}.{copies}", operator.shapes[0]))
        for step in range(copies):
            ends = [f"{label}.{step}", *names], [f"{label}.{step + 1}"]
            node = helper.make_node(operator.op_type, *ends, name=f"{label}.{step + 1}")
            node.attribute.extend(helper.make_attribute(*attribute) for attribute in operator.attributes.items())
            nodes.append(node)
    graph = helper.make_graph(nodes, "operators", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), feeds


def value(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def oracle_us(operator: Operator, k: int, settings: SessionSettings, rounds: int) -> float:
    """Return the operator's time by the slope of unprofiled chains of k and 2k copies."""
    short, feeds = build([(operator, k)])
    sessions = [create_session(short, settings), create_session(build([(operator, 2 * k)])[0], settings)]
    walls = np.array([[lap_us(session, feeds) for session in sessions] for _ in range(WARMUP + rounds)])[WARMUP:]
    return float(np.median(walls[:, 1] - walls[:, 0])) / k


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over the inner copies of one operator in one model."""

    raw_us: float
    corrected_us: float
    is_dominated: bool


def figures(branches: Sequence[tuple[Operator, int]], settings: SessionSettings, runs: int) -> dict[str, Figures]:
    """Measure a model as stage 01 does; return the figures by operator."""
    content, feeds = build(branches)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.onnx"
        model.write_bytes(content)
        sessions = prepare(SessionPlan(model, feeds, settings), folder)
        (runs_of,) = take_turns([sessions], Budget(WARMUP, runs), lambda done, total: None)
        measured = conclude(sessions.traced.end(), runs_of)
        executed = onnx.load(folder / "executed.onnx", load_external_data=False).graph.node
        counts = {node.name: sum(map(bool, node.input)) for node in executed}
        latencies = correct(measured, counts, folder)
    return {operator.label: gathered(latencies, operator.label) for operator, _ in branches}


def gathered(latencies: Iterable[NodeLatency], label: str) -> Figures:
    """Return the figures of the copies ``<label>.<step>``; the runtime may have renamed them to ``…_nchwc``."""
    name = re.compile(rf"{re.escape(label)}\.(\d+)(_nchwc)?")
    steps = {int(match[1]): latency for latency in latencies if (match := name.fullmatch(latency.node.name))}
    copies = [steps[step] for step in sorted(steps)[SKIPPED[0] : -SKIPPED[1]]]
    raw, corrected = (
        float(np.median([latency.statistics[f"{kind}_median_us"] for latency in copies]))
        for kind in ("raw", "corrected")
    )
    return Figures(raw, corrected, any(latency.is_correction_dominated for latency in copies))


@dataclass(frozen=True, slots=True)
class Row:
    """The oracle and the figures per sweep of one operator in one kind of model."""

    label: str
    kind: str
    oracles_us: Sequence[float]
    figures: Sequence[Figures]

    @property
    def oracle_us(self) -> float:
        """Median over the sweeps."""
        return float(np.median(self.oracles_us))

    @property
    def raw_us(self) -> float:
        """Median over the sweeps, as traced."""
        return float(np.median([sweep.raw_us for sweep in self.figures]))

    @property
    def corrected_us(self) -> float:
        """Median over the sweeps."""
        return float(np.median([sweep.corrected_us for sweep in self.figures]))

    @property
    def difference_us(self) -> float:
        """Median of the sweeps' differences, each from the oracle of its own sweep."""
        pairs = zip(self.figures, self.oracles_us, strict=True)
        return float(np.median([sweep.corrected_us - oracle_us for sweep, oracle_us in pairs]))

    @property
    def spread_us(self) -> float:
        """Difference between the largest and the smallest oracle."""
        return max(self.oracles_us) - min(self.oracles_us)

    def limit_us(self, threads: int) -> float:
        """Return the largest difference that is accepted."""
        least_us, fraction = LIMITS[threads == 1]
        return max(least_us, fraction * self.oracle_us)

    def verdict(self, threads: int) -> str:
        """Return ``ok`` or ``OUT``, or why the row does not count; ``(flagged)`` marks a dominating correction."""
        if not RANGE_US[0] <= self.oracle_us <= RANGE_US[1]:
            return "not in range"
        if self.spread_us > 2 * self.limit_us(threads):
            return "oracle unsure"
        verdict = "ok" if abs(self.difference_us) <= self.limit_us(threads) else "OUT"
        return f"{verdict} (flagged)" if any(sweep.is_dominated for sweep in self.figures) else verdict


HEADER = ("operator", "model", "raw us", "corrected", "oracle", "spread", "difference", "limit", "verdict")


def line(cells: Iterable[object]) -> str:
    """Return a row of a Markdown table that is also readable as plain text."""
    first, second, *numbers, last = cells
    return f"| {first:<26} | {second:<5} | " + " | ".join(f"{cell:>10}" for cell in numbers) + f" | {last:<13} |"


def shown(row: Row, threads: int) -> str:
    numbers = (row.raw_us, row.corrected_us, row.oracle_us, row.spread_us, row.difference_us, row.limit_us(threads))
    return line((row.label, row.kind, *(f"{number:.1f}" for number in numbers), row.verdict(threads)))


def rows(group: Group, settings: SessionSettings, sweeps: int, rounds: int) -> list[Row]:
    """Measure a group: in each sweep every operator's oracle and chain, and the model that they share."""
    oracles: dict[str, list[float]] = {operator.label: [] for operator in group.operators}
    measured: dict[str, dict[str, list[Figures]]] = {"mixed": {}, "chain": {}}
    for _ in range(sweeps):
        for operator in group.operators:
            oracles[operator.label].append(oracle_us(operator, group.k, settings, rounds))
            chain = figures([(operator, 2 * group.k)], settings, rounds)
            measured["chain"].setdefault(operator.label, []).append(chain[operator.label])
        if branches := [(operator, COPIES) for operator in group.operators if operator.is_cached]:
            for label, single in figures(branches, settings, rounds).items():
                measured["mixed"].setdefault(label, []).append(single)
    return [
        Row(label, kind, oracles[label], measured[kind][label])
        for label in oracles
        for kind in measured
        if label in measured[kind]
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--optimization", choices=("disable", "all"), default="all")
    parser.add_argument("--sweeps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--groups", type=int, default=len(SIZES), help="number of groups, from the shortest (default: 6)"
    )
    options = parser.parse_args(argv)
    settings = SessionSettings(options.threads, optimization=options.optimization)
    print(line(HEADER), line(["---"] * len(HEADER)), sep="\n")
    verdicts = []
    for group in groups()[: options.groups]:
        for row in rows(group, settings, options.sweeps, options.rounds):
            verdicts.append(row.verdict(options.threads))
            print(shown(row, options.threads), flush=True)
    out, well = (sum(verdict.startswith(word) for verdict in verdicts) for word in ("OUT", "ok"))
    counted = out + well
    print(f"\n{counted - out} of {counted} rows within their limits; {len(verdicts) - counted} not judged")
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
