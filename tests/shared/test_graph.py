"""The shared vocabulary, on a graph small enough to read."""

import pytest

from common.graphs.expressions import at, dimension
from common.graphs.graph import Body, Edge, Graph, Node, Tensor, is_symbolic, operands, packed_bytes

N = dimension("N")


def tensor(name, shape, bits=32, kind="activation"):
    return Tensor(name, "float32", bits, shape, kind)


@pytest.mark.parametrize(
    ("shape", "count"),
    [((3, 5, 7), 105), ((), 1), ((3, 0), 0), ((3, N), 3 * N), ((N, N, 2), 2 * N**2), ((3, None), None), (None, None)],
)
def test_element_count(shape, count):
    assert tensor("x", shape).element_count == count


@pytest.mark.parametrize(
    ("shape", "bits", "size"),
    [
        ((3, 5), 32, 60),
        ((3,), 4, 2),  # three int4 in two bytes
        ((5,), 2, 2),
        ((7,), 1, 1),
        ((), 64, 8),
        ((3,), 0, None),  # strings have no fixed width
        ((0,), 0, 0),
        ((None,), 32, None),
        (None, 32, None),
        ((N, 3), 32, 12 * N),
        ((N,), 0, None),
    ],
)
def test_size_bytes(shape, bits, size):
    assert tensor("x", shape, bits).size_bytes == size


@pytest.fixture
def graph():
    """x -> a -> (b twice, c) -> add; ``skip`` is an absent optional output."""
    nodes = (
        Node("a", "Split", "", ("x",), ("a0", "", "a1")),
        Node("b", "Mul", "", ("a0", "a0"), ("b0",)),
        Node("c", "Clip", "", ("a1", "", "limit"), ("c0",)),
        Node("add", "Add", "", ("b0", "c0"), ("y",)),
    )
    return Graph(nodes, {}, ("y", "a1"))


def test_by_name_and_producer(graph):
    assert graph.by_name["c"].op_type == "Clip"
    assert graph.producer == {"a0": "a", "a1": "a", "b0": "b", "c0": "c", "y": "add"}


def test_consumers_are_named_once(graph):
    assert graph.consumers["a0"] == ("b",)
    assert graph.consumers["a1"] == ("c",)
    assert "" not in graph.consumers


def test_operands_leave_out_absent_and_repeated_names(graph):
    assert operands(graph.by_name["b"]) == ("a0",)
    assert operands(graph.by_name["c"]) == ("a1", "limit")


def test_edges_in_the_order_of_consumers_then_the_outputs(graph):
    assert list(graph.edges()) == [
        Edge("x", "", "a"),
        Edge("a0", "a", "b"),
        Edge("a1", "a", "c"),
        Edge("limit", "", "c"),
        Edge("b0", "b", "add"),
        Edge("c0", "c", "add"),
        Edge("y", "add", ""),
        Edge("a1", "a", ""),
    ]


def test_packed_symbols_round_up_like_numbers():
    """N elements of 4 bits: ⌈N / 2⌉ bytes."""
    size = packed_bytes(N, 4)
    assert [at(size, {"N": count}) for count in (1, 2, 3, 7)] == [1, 1, 2, 4]
    assert [packed_bytes(count, 4) for count in (1, 2, 3, 7)] == [1, 1, 2, 4]
    assert (is_symbolic(size), is_symbolic(7), is_symbolic(None), is_symbolic(N - N + 7)) == (
        True,
        False,
        False,
        False,
    )


@pytest.fixture
def laid_out():
    """x -> a -> (a body that calls it s, and inside that another that calls it t) -> loop."""
    nodes = (
        Node("a", "Relu", "", ("x",), ("y",)),
        Node("deep", "Abs", "", ("t",), ("u",), body="inner.body"),
        Node("inner", "Loop", "", ("m", "", "s", "u"), ("v",), body="loop.body"),
        Node("loop", "Loop", "", ("m", "", "y", "v"), ("z",)),
    )
    bodies = {"loop.body": Body("loop.body", "loop", 3, 3), "inner.body": Body("inner.body", "inner", 15, 15)}
    return Graph(nodes, {}, ("z",), bodies, {"s": "y", "t": "s"})


def test_an_alias_has_the_producer_of_what_it_stands_for(laid_out):
    producers = laid_out.producer
    assert (producers["y"], producers["s"], producers["t"]) == ("a", "a", "a")
    assert "m" not in producers


def test_edges_go_into_and_out_of_bodies(laid_out):
    assert list(laid_out.edges()) == [
        Edge("x", "", "a"),
        Edge("t", "a", "deep"),
        Edge("m", "", "inner"),
        Edge("s", "a", "inner"),
        Edge("u", "deep", "inner"),
        Edge("m", "", "loop"),
        Edge("y", "a", "loop"),
        Edge("v", "inner", "loop"),
        Edge("z", "loop", ""),
    ]
