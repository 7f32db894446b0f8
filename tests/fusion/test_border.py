from __future__ import annotations

from common.fusion.border import BorderTensor, board_phases, border, crossings, total_bytes, unfused_bytes
from common.fusion.groups import fuse
from tests.support.tables.fpga import Model


def block(*, unknown: str = "") -> Model:
    """Conv (5 → 7 channels) with BatchNorm, residual and Relu, in bytes that are primes."""
    model = Model(outputs=["y"])
    model.weights(w=1009, s=53)
    model.sizes |= {"x": 2003, "c": 3001, "b": 3001, "skip": 3001, "sum": 3001, "y": 3001}
    if unknown:
        model.sizes[unknown] = None
    model.add("Conv", "x w", "c")
    model.add("BatchNormalization", "c s", "b")
    model.add("Add", "b skip", "sum")
    model.add("Relu", "sum", "y")
    return model


def test_border_of_a_residual_block_reads_the_shortcut_and_writes_the_result():
    graph = block().graph()
    (group,) = fuse(graph)
    tensors = border(graph, group.nodes)
    assert {(tensor.tensor, tensor.role, tensor.size_bytes) for tensor in tensors} == {
        ("x", "read", 2003),
        ("w", "weight", 1009),
        ("s", "weight", 53),
        ("skip", "read", 3001),
        ("y", "write", 3001),
    }
    assert total_bytes(tensors) == 2003 + 1009 + 53 + 3001 + 3001
    conv, norm, add, relu = 2003 + 1009 + 3001, 3001 + 53 + 3001, 3001 + 3001 + 3001, 3001 + 3001
    assert unfused_bytes(graph, group) == conv + norm + add + relu


def test_tensor_that_two_nodes_of_the_group_read_is_read_once():
    model = block()
    model.nodes[2]["inputs"] = ["b", "x"]  # the block's own input as shortcut
    graph = model.graph()
    (group,) = fuse(graph)
    assert [tensor.tensor for tensor in border(graph, group.nodes)].count("x") == 1


def test_unknown_sizes_make_totals_unknown_and_are_not_zero():
    graph = block(unknown="skip").graph()
    (group,) = fuse(graph)
    assert BorderTensor("skip", "read", "float32", None) in border(graph, group.nodes)
    assert total_bytes(border(graph, group.nodes)) is None
    assert unfused_bytes(graph, group) is None


def chain() -> Model:
    """host MaxPool → Conv → Reshape (a view) → Conv → host Softmax, and a second reader of the first result."""
    model = Model(outputs=["y", "e"])
    model.weights(w=11, shape=8)
    model.sizes |= {"x": 101, "p": 103, "a": 107, "v": 107, "b": 109, "y": 113, "d": 4, "e": 4}
    model.add("MaxPool", "x", "p")
    model.add("Conv", "p w", "a")
    model.add("Reshape", "a shape", "v")
    model.add("Conv", "v w", "b")
    model.add("Softmax", "b", "y")
    model.add("Shape", "a", "d")
    model.add("Cast", "d", "e")
    return model


def carried(model: Model, *nodes: str) -> set[str]:
    return set(crossings(model.graph(), set(nodes)))


def test_only_cut_edges_are_carried_and_a_view_between_two_board_groups_is_none():
    assert carried(chain(), "/a", "/b") == {"p", "b"}


def test_what_lies_behind_a_view_travels_once_when_the_other_side_reads_it():
    assert carried(chain(), "/a") == {"p", "a"}
    assert carried(chain(), "/b") == {"a", "b"}


def test_returned_tensors_come_back_and_graph_inputs_go_out():
    assert carried(chain(), "/p", "/a", "/b", "/y") == {"x", "y"}


def test_phases_count_the_returns_to_the_host():
    model = Model(outputs=["f"])
    model.weights(w=11)
    for x, y, op_type in (("x", "a", "Conv"), ("a", "b", "MaxPool"), ("b", "c", "Conv"), ("c", "d", "Conv")):
        model.add(op_type, f"{x} w" if op_type == "Conv" else x, y)
    model.add("Reshape", "d", "e")
    model.add("Conv", "e w", "f")
    graph = model.graph()
    convolutions = {"/a", "/c", "/d", "/f"}
    assert board_phases(graph, fuse(graph), convolutions) == {"/a": 1, "/c": 3, "/d": 3, "/f": 3}
