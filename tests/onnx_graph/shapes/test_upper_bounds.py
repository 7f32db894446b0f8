"""Upper bounds of data-dependent shapes: no run of ONNX Runtime exceeds them, and one reaches them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from common.graphs.graph import Tensor
from common.onnx_graph.shapes.upper_bounds import upper_bound
from tests.support.models.one_node import MICROSOFT, NCHWC, i32, i64, node_of, session_of, tensors_of

Operands = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A node with operands that reach the bound, and a way to draw others of the same types."""

    op_type: str
    expected: list[tuple[int, ...]]
    reaching: Operands
    drawn: Callable[[np.random.Generator], Operands]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    known: tuple[int, ...] = ()  # operands whose value the bound may use
    reached: tuple[int, ...] | None = None  # outputs that reach their bound together; None: all
    label: str = ""

    def __str__(self) -> str:
        return f"{self.op_type}{self.label}"

    @property
    def node(self) -> onnx.NodeProto:
        return node_of(self.op_type, self.reaching, range(len(self.expected)), self.domain, **self.attributes)

    def value(self, name: str) -> np.ndarray | None:
        index = int(name[1:])
        return np.asarray(self.reaching[index]) if index in self.known else None


def floats(array: Any) -> np.ndarray:
    return np.asarray(array, np.float32)


def some(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """About half of the numbers are zero, and few are distinct."""
    return floats(rng.integers(0, 3, shape) * (rng.random(shape) > 0.3))


def distinct(*shape: int) -> np.ndarray:
    return floats(np.arange(1, 1 + np.prod(shape))).reshape(shape)


def boxes(rng: np.random.Generator, batches: int, count: int) -> np.ndarray:
    corner = rng.random((batches, count, 2))
    return floats(np.concatenate([corner, corner + 0.5], axis=2))


def apart(batches: int, count: int) -> np.ndarray:
    """Boxes that do not overlap."""
    row = [[0.0, 2.0 * i, 1.0, 2.0 * i + 1] for i in range(count)]
    return floats([row] * batches)


GRID = floats(np.ones((2, 3, 5)))
WORDS = np.array(["a", "b", "c"], object)
GROUPED = {"num_heads": 6, "kv_num_heads": 3}


def grouped(past: int, total: int) -> Operands:
    rng = np.random.default_rng(3)
    new = [floats(rng.random((1, 2, width))) for width in (48, 24, 24)]
    cache = [floats(rng.random((1, 3, past, 8))) for _ in range(2)]
    return (*new, *cache, i32([total - 1]), np.array(total, np.int32))


CASES = [
    Case("NonZero", [(3, 30)], (GRID,), lambda rng: (some(rng, 2, 3, 5),)),
    Case("NonZero", [(1, 1)], (np.float32(1),), lambda rng: (some(rng),), label="-scalar"),
    Case("Compress", [(30,)], (GRID, np.ones(30, bool)), lambda rng: (GRID, rng.random(30) > 0.5)),
    Case("Compress", [(7,)], (GRID, np.ones(7, bool)), lambda rng: (GRID, rng.random(7) > 0.5), label="-short"),
    Case(
        "Compress",
        [(2, 3, 5)],
        (GRID, np.ones(3, bool)),
        lambda rng: (GRID, rng.random(3) > 0.5),
        {"axis": -2},
        label="-axis",
    ),
    Case("Unique", [(15,)] * 4, (distinct(3, 5),), lambda rng: (some(rng, 3, 5),)),
    Case(
        "Unique", [(3, 5), *[(5,)] * 3], (distinct(3, 5),), lambda rng: (some(rng, 3, 5),), {"axis": 1}, label="-axis"
    ),
    Case("Unique", [(7,)] * 3, (distinct(7),), lambda rng: (some(rng, 7),), domain=MICROSOFT, label="-contrib"),
    Case(
        "NonMaxSuppression",
        [(2 * 3 * 5, 3)],
        (apart(2, 7), floats(np.ones((2, 3, 7))), i64([5]), floats([0.1])),
        lambda rng: (boxes(rng, 2, 7), floats(rng.random((2, 3, 7))), i64([5]), floats([0.1])),
        known=(2,),
    ),
    Case(
        "NonMaxSuppression",
        [(2 * 3 * 7, 3)],
        (apart(2, 7), floats(np.ones((2, 3, 7))), i64([11]), floats([0.1])),
        lambda rng: (boxes(rng, 2, 7), floats(rng.random((2, 3, 7))), i64([rng.integers(0, 11)]), floats([0.1])),
        label="-unknown",
    ),
    Case(
        "NonMaxSuppression",
        [(0, 3)],
        (apart(2, 7), floats(np.ones((2, 3, 7)))),
        lambda rng: (boxes(rng, 2, 7), floats(rng.random((2, 3, 7)))),
        label="-none",
    ),
    Case("TopK", [(3, 5)] * 2, (distinct(3, 5), i64([5])), lambda rng: (some(rng, 3, 5), i64([rng.integers(1, 6)]))),
    Case(
        "TopK",
        [(2, 5)] * 2,
        (distinct(3, 5), i64([2])),
        lambda rng: (some(rng, 3, 5), i64([2])),
        {"axis": 0},
        known=(1,),
        label="-known",
    ),
    Case(
        "Slice",
        [(3, 5)],
        (distinct(3, 5), i64([0, 0]), i64([99, 99])),
        lambda rng: (some(rng, 3, 5), rng.integers(-5, 5, 2), rng.integers(-5, 5, 2)),
    ),
    Case(
        "Split",
        [(3, 7)] * 2,
        (distinct(3, 7), i64([7, 0])),
        lambda rng: (some(rng, 3, 7), rng.multinomial(7, [0.5, 0.5])),
        {"axis": 1},
        reached=(0,),
    ),
    *(
        Case(
            kind,
            [(3, 1, 5)],
            (distinct(3, 1, 5), i64([1])),
            lambda rng: (some(rng, 3, 1, 5), rng.integers(-3, 3, 1)),
            label="-keepdims",
        )
        for kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2")
    ),
    Case(
        "StringNormalizer",
        [(3,)],
        (np.array(["b", "c", "d"], object),),
        lambda rng: (WORDS[rng.integers(0, 3, 3)],),
        {"stopwords": ["a"], "is_case_sensitive": 1},
    ),
    Case(
        "DynamicTimeWarping",
        [(2, 3 + 5 - 1)],
        (floats([[0, 9, 9, 9, 9], [0, 9, 9, 9, 9], [0, 0, 0, 0, 0]]),),
        lambda rng: (floats(rng.random((3, 5))),),
        domain=MICROSOFT,
    ),
    Case(
        "GroupQueryAttention",
        [(1, 2, 48), (1, 3, 13, 8), (1, 3, 13, 8)],
        grouped(11, 13),
        lambda rng: grouped(11, int(rng.choice([5, 7, 11, 13]))),
        GROUPED,
        domain=MICROSOFT,
    ),
    Case(
        "ReorderInput",
        [(1, 16, 3, 5)],
        (floats(np.ones((1, 12, 3, 5))),),
        lambda rng: (floats(rng.random((1, 12, 3, 5))),),
        domain=NCHWC,
    ),
    Case(
        "ReorderInput",
        [(1, 16, 3, 5)],
        (floats(np.ones((1, 3, 5, 12))),),
        lambda rng: (floats(rng.random((1, 3, 5, 12))),),
        {"channels_last": 1},
        domain=NCHWC,
        label="-last",
    ),
]


def shapes(session: ort.InferenceSession, operands: Operands) -> list[tuple[int, ...]]:
    feeds = {f"x{i}": np.asarray(operand) for i, operand in enumerate(operands) if operand is not None}
    return [array.shape for array in session.run(None, feeds)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bound_is_never_exceeded_and_is_reached(case: Case) -> None:
    bounds = upper_bound(case.node, tensors_of(case.reaching), case.value)
    assert bounds == case.expected
    fed = [name for name in case.node.input if name]
    session, rng = session_of(case.node, case.reaching, inputs=fed), np.random.default_rng(11)
    for _ in range(20):
        for real, most in zip(shapes(session, case.drawn(rng)), case.expected, strict=True):
            assert len(real) == len(most)
            assert all(dim <= bound for dim, bound in zip(real, most, strict=True))
    reaching = shapes(session, case.reaching)
    outputs = range(len(case.expected)) if case.reached is None else case.reached
    assert all(reaching[output] == case.expected[output] for output in outputs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operand_of_unknown_shape_has_no_wrong_bound(case: Case) -> None:
    blurred = [tensor and Tensor(tensor.name, tensor.dtype, 0, None, "input") for tensor in tensors_of(case.reaching)]
    for bound, real in zip(upper_bound(case.node, blurred, lambda _: None) or [], case.expected, strict=False):
        assert bound is None or all(dim is None or dim >= known for dim, known in zip(bound, real, strict=True))


@pytest.mark.parametrize("op_type", ["Resize", "Pad", "Tile", "Expand", "Range", "OneHot", "Reshape", "StringSplit"])
def test_an_operator_whose_output_may_be_of_any_size_has_no_bound(op_type: str) -> None:
    node = helper.make_node(op_type, ["x", "v"], ["y"])
    operands = [Tensor("x", "float32", 32, (3, 5), "input"), Tensor("v", "int64", 64, (2,), "input")]
    assert upper_bound(node, operands, lambda _: None) is None


def test_a_dimension_without_a_number_has_no_bound_and_the_others_have() -> None:
    data = [Tensor("x", "float32", 32, ("batch", 3, 5), "input")]
    assert upper_bound(helper.make_node("NonZero", ["x"], ["y"]), data, lambda _: None) == [(3, None)]
    node = helper.make_node("Unique", ["x"], ["y", "", "z"], axis=1)
    assert upper_bound(node, data, lambda _: None) == [(None, 3, 5), None, (3,)]


def test_an_operand_of_another_rank_or_axis_has_no_bound() -> None:
    data = [Tensor("x", "float32", 32, (3, 5), "input"), Tensor("k", "int64", 64, (1,), "input")]
    assert upper_bound(helper.make_node("TopK", ["x", "k"], ["y", "z"], axis=2), data, lambda _: None) is None
    assert upper_bound(helper.make_node("NonMaxSuppression", ["x", "x"], ["y"]), data[:1] * 2, lambda _: None) is None
    node = helper.make_node("ReduceSum", ["x", "k"], ["y"], keepdims=0)
    assert upper_bound(node, data, lambda _: None) is None
