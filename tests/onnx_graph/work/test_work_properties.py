"""Multiply-accumulates of random contractions against executions that count their products.

The executions are ONNX's reference implementation, numpy's einsum and numpy's matmul, run on numbers that count. A
product with a plain number (a zero of a padding, a state that is not given) is not counted, so every operand is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.support.models.onnx_models import work_of


class Counting:
    """A number that counts the products of two of its kind."""

    products = 0

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    @staticmethod
    def of(other):
        return other.value if isinstance(other, Counting) else float(other)

    def __mul__(self, other):
        Counting.products += isinstance(other, Counting)
        return Counting(self.value * self.of(other))

    def __add__(self, other):
        return Counting(self.value + self.of(other))

    def __sub__(self, other):
        return Counting(self.value - self.of(other))

    def __rsub__(self, other):
        return Counting(self.of(other) - self.value)

    def __truediv__(self, other):
        return Counting(self.value / self.of(other))

    def __rtruediv__(self, other):
        return Counting(self.of(other) / self.value)

    def __neg__(self):
        return Counting(-self.value)

    def exp(self):
        return Counting(math.exp(self.value))

    def tanh(self):
        return Counting(math.tanh(self.value))

    __rmul__, __radd__ = __mul__, __add__


def numbers(shape: Sequence[int]) -> np.ndarray:
    """An array of counting numbers."""
    array = np.empty(shape, object)
    for place in np.ndindex(*shape):
        array[place] = Counting()
    return array


def reference_products(op_type: str, shapes: Sequence[Sequence[int] | str], outputs: int = 1, **attributes) -> int:
    """Products that ONNX's reference implementation makes; the empty text is an absent operand."""
    names = ["" if isinstance(shape, str) else f"x{index}" for index, shape in enumerate(shapes)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    operands = {name: shape for name, shape in zip(names, shapes, strict=True) if name}
    graph = helper.make_graph(
        [node],
        "counted",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in operands.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    feeds = {name: numbers(shape) for name, shape in operands.items()}
    Counting.products = 0
    ReferenceEvaluator(model).run(None, feeds)
    return Counting.products


extents = st.integers(1, 4)
few = settings(max_examples=15, deadline=None)


@few
@given(
    spatial=st.lists(st.integers(3, 5), min_size=2, max_size=2),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    group=st.integers(1, 3),
    channels=extents,
    filters=extents,
)
def test_conv(spatial, kernel, stride, dilation, group, channels, filters):
    assume(dilation * (kernel - 1) < min(spatial))
    shapes = [(2, group * channels, *spatial), (group * filters, channels, kernel, kernel)]
    settings_ = {"group": group, "strides": [stride] * 2, "dilations": [dilation] * 2}
    assert work_of("Conv", shapes, **settings_).macs == reference_products("Conv", shapes, **settings_)


@few
@given(
    spatial=st.lists(extents, min_size=2, max_size=2),
    kernel=st.integers(2, 3),
    stride=st.integers(1, 3),
    pad=st.integers(0, 1),
    channels=extents,
    filters=extents,
)
def test_conv_transpose_makes_the_products_that_cropping_drops(spatial, kernel, stride, pad, channels, filters):
    assume((min(spatial) - 1) * stride + kernel > 2 * pad)
    shapes = [(1, channels, *spatial), (channels, filters, kernel, kernel)]
    settings_ = {"strides": [stride] * 2, "pads": [pad] * 4}
    work = work_of("ConvTranspose", shapes, **settings_)
    assert work.macs == reference_products("ConvTranspose", shapes, **settings_)


@few
@given(batch=st.lists(extents, max_size=2), m=extents, k=extents, n=extents, ones=st.integers(0, 3))
def test_matmul(batch, m, k, n, ones):
    left = [1 if ones & 1 else extent for extent in batch] + [m, k]
    right = [1 if ones & 2 else extent for extent in batch] + [k, n]
    Counting.products = 0
    np.matmul(numbers(left), numbers(right))
    assert work_of("MatMul", [left, right]).macs == Counting.products


@few
@given(m=extents, k=extents, n=extents, left=st.booleans(), right=st.booleans())
def test_gemm(m, k, n, left, right):
    shapes = [(k, m) if left else (m, k), (n, k) if right else (k, n)]
    settings_ = {"transA": int(left), "transB": int(right)}
    assert work_of("Gemm", shapes, **settings_).macs == reference_products("Gemm", shapes, **settings_)


# --- Einstein sums ---------------------------------------------------------------------------------------------------

labels = st.text("abcd", min_size=1, max_size=3)


def pairwise(equation: str, arrays: list[np.ndarray]) -> tuple[int, np.ndarray]:
    """Products of numpy's einsum, two operands at a time from the left; labels that nobody needs are summed first."""
    left, right = equation.split("->")
    terms, products = left.split(","), 0
    current, result = "", None
    for place, (term, array) in enumerate(zip(terms, arrays, strict=True)):
        needed = set(right) | {label for later in terms[place + 1 :] for label in later}
        kept = "".join(label for label in dict.fromkeys(term) if label in needed | set(current))
        reduced = np.einsum(f"{term}->{kept}", array)
        if result is None:
            current, result = kept, reduced
            continue
        after = "".join(label for label in dict.fromkeys(current + kept) if label in needed)
        Counting.products = 0
        result = np.einsum(f"{current},{kept}->{after}", result, reduced)
        products += Counting.products
        current = after
    return products, np.einsum(f"{current}->{right}", result)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(terms=st.lists(labels, min_size=1, max_size=3), data=st.data())
def test_einsum(terms, data):
    """Any equation: repeated labels, sums, outer products, up to three operands."""
    used = sorted({label for term in terms for label in term})
    extent = {label: data.draw(st.integers(1, 3)) for label in used}
    result = data.draw(st.permutations(used))[: data.draw(st.integers(0, len(used)))]
    equation = f"{','.join(terms)}->{''.join(result)}"
    shapes = [[extent[label] for label in term] for term in terms]
    products, answer = pairwise(equation, [numbers(shape) for shape in shapes])
    work = work_of("Einsum", shapes, outputs=[np.shape(answer)], equation=equation)
    assert work.macs == products
    if work.gemm:
        assert work.gemm.batch * work.gemm.m * work.gemm.k * work.gemm.n == products


# --- recurrent layers and attention -----------------------------------------------------------------------------------

sizes = {"steps": st.integers(1, 3), "batch": st.integers(1, 2), "inputs": extents, "hidden": extents}


def recurrent(op_type: str, gates: int, steps: int, batch: int, inputs: int, hidden: int, directions: int):
    """Operand shapes with every optional state given, and attributes."""
    states = [(directions, batch, hidden)] * (2 if op_type == "LSTM" else 1)
    weights = [
        (directions, gates * hidden, inputs),
        (directions, gates * hidden, hidden),
        (directions, 2 * gates * hidden),
    ]
    shapes = [(steps, batch, inputs), *weights, "", *states]
    return shapes, {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"}


@few
@given(**sizes, directions=st.integers(1, 2))
def test_lstm(steps, batch, inputs, hidden, directions):
    """Beside the matrix products, three of the state: f ⊙ C, i ⊙ c, o ⊙ tanh(C); the peepholes are zeros."""
    shapes, settings_ = recurrent("LSTM", 4, steps, batch, inputs, hidden, directions)
    work = work_of("LSTM", shapes, outputs=[None] * 3, **settings_)
    state = 3 * steps * batch * hidden * directions
    assert work.macs == reference_products("LSTM", shapes, 3, **settings_) - state


@few
@given(**sizes)
def test_gru(steps, batch, inputs, hidden):
    """Of the state: r ⊙ H, (1 − z) ⊙ h, z ⊙ H. The reference evaluates both values of ``linear_before_reset``:

    once more the products of the hidden gate, and another r ⊙ H.
    """
    shapes, settings_ = recurrent("GRU", 3, steps, batch, inputs, hidden, 1)
    work = work_of("GRU", shapes, outputs=[None] * 2, **settings_)
    elements = steps * batch * hidden
    unused = elements * (inputs + hidden + 1)
    assert work.macs == reference_products("GRU", shapes, 2, **settings_) - 3 * elements - unused


@few
@given(**sizes)
def test_rnn(steps, batch, inputs, hidden):
    shapes, settings_ = recurrent("RNN", 1, steps, batch, inputs, hidden, 1)
    assert work_of("RNN", shapes, outputs=[None] * 2, **settings_).macs == reference_products(
        "RNN", shapes, 2, **settings_
    )


@few
@given(
    groups=st.integers(1, 2),
    share=st.integers(1, 2),
    queries=extents,
    keys=extents,
    past=st.integers(0, 3),
    width=extents,
    value_width=extents,
    packed=st.booleans(),
)
def test_attention(groups, share, queries, keys, past, width, value_width, packed):
    """numpy's matmul of what each head sees: its own queries, its group's keys and values with the past."""
    batch, heads = 2, groups * share
    heads_of = [(heads, queries, width), (groups, keys, width), (groups, keys, value_width)]
    shapes = [(batch, length, h * size) if packed else (batch, h, length, size) for h, length, size in heads_of]
    if past:
        shapes += ["", (batch, groups, past, width), (batch, groups, past, value_width)]
    settings_ = {"q_num_heads": heads, "kv_num_heads": groups} if packed else {}
    result = (batch, queries, heads * value_width) if packed else (batch, heads, queries, value_width)
    work = work_of("Attention", shapes, outputs=[result], opset=23, **settings_)
    Counting.products = 0
    for _ in range(batch * heads):
        scores = numbers((queries, width)) @ numbers((width, keys + past))
        assert (scores @ numbers((keys + past, value_width))).shape == (queries, value_width)
    assert work.macs == Counting.products


def test_the_reference_refuses_what_it_cannot_count():
    """A product with a plain number must not count: the guard of every comparison above."""
    Counting.products = 0
    assert (numbers((3,)) * 2.0)[0].value == pytest.approx(1.0)
    assert Counting.products == 0
