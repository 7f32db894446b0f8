"""Nodes that no operator takes: the rules say nothing of them, the count says which node it is in one line."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper

from common.graphs.graph import Graph, Node, Tensor
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from common.onnx_graph.shapes.contrib.registry import RULES, contrib_outputs
from common.onnx_graph.shapes.upper_bounds import BOUNDS, upper_bound
from common.onnx_graph.work import measure
from common.onnx_graph.work.registry import FORMULAS
from tests.support.models.onnx_models import model

ATTRIBUTES = ("num_heads", "kv_num_heads", "q_num_heads", "axis", "K", "N", "bits", "block_size", "k", "group")
VALUES = (np.array(0), np.array([0, 0]), np.array(-3), np.array([2.5, np.nan]), np.array(["a"], object))
DRAWS = 20


def operand(draw: random.Random, name: str) -> Tensor | None:
    """Left out, of unknown rank, or of a few small dimensions, some of them zero or unknown."""
    if draw.random() < 0.2:
        return None
    rank = draw.choice([None, 0, 1, 2, 3, 4, 5])
    shape = None if rank is None else tuple(draw.choice([0, 1, 2, 7, None]) for _ in range(rank))
    dtype, bits = draw.choice([("float32", 32), ("uint8", 8), ("int64", 64), ("string", 0), ("", 0)])
    return Tensor(name, dtype, bits, shape, "activation")


def operands(draw: random.Random, letter: str, most: int) -> list[Tensor | None]:
    return [operand(draw, f"{letter}{index}") for index in range(draw.randint(0, most))]


def names(tensors: list[Tensor | None]) -> tuple[str, ...]:
    return tuple(tensor.name if tensor else "" for tensor in tensors)


@pytest.mark.slow
@pytest.mark.parametrize(("infer", "table"), [(contrib_outputs, RULES), (upper_bound, BOUNDS)], ids=["rule", "bound"])
def test_of_a_malformed_node_nothing_impossible_is_known(infer, table):
    draw = random.Random(7)
    answered = 0
    for domain, op_type in table:
        for _ in range(DRAWS):
            given = operands(draw, "x", 9)
            chosen = {name: draw.choice([0, 1, 2, -1, 7]) for name in ATTRIBUTES if draw.random() < 0.4}
            outputs = [f"y{index}" for index in range(draw.randint(1, 4))]
            node = helper.make_node(op_type, names(given), outputs, domain=domain, **chosen)
            found = infer(node, given, lambda _: draw.choice([None, *VALUES])) or []
            shapes = [answer[1] if answer and infer is contrib_outputs else answer for answer in found]
            assert all(dim is None or dim >= 0 for shape in shapes for dim in shape or ()), node
            answered += any(shape is not None for shape in shapes)
    assert answered > len(table)  # the draw is not only of nonsense


@pytest.mark.slow
def test_a_malformed_node_is_counted_or_named_in_one_line():
    draw = random.Random(7)
    counted = refused = 0
    for domain, op_type in FORMULAS:
        for _ in range(DRAWS):
            given, made = operands(draw, "x", 9), operands(draw, "y", 3)
            chosen = {name: draw.choice([0, 1, 2, -1, 7, b"text"]) for name in ATTRIBUTES if draw.random() < 0.3}
            node = Node("odd", op_type, domain, names(given), names(made), chosen)
            try:
                measure(Graph((node,), {tensor.name: tensor for tensor in given + made if tensor}, ()), node)
                counted += 1
            except PipelineError as error:
                assert str(error).startswith(f"node 'odd': not a valid {op_type} (")
                refused += 1
    assert counted > len(FORMULAS)
    assert refused > len(FORMULAS) // 2


@pytest.mark.parametrize("op_type", ["Gather", "GatherND", "Slice", "Expand"])
def test_a_gather_without_operands_is_named(op_type):
    node = Node("odd", op_type, "", (), ("y",), {})
    with pytest.raises(PipelineError, match=rf"node 'odd': not a valid {op_type} \(operand \d is missing\)"):
        measure(Graph((node,), {"y": Tensor("y", "float32", 32, (3,), "output")}, ("y",)), node)


def test_a_negative_size_is_no_bound():
    data = [Tensor("x", "float32", 32, (3, 5), "input"), Tensor("k", "int64", 64, (1,), "input")]
    node: onnx.NodeProto = helper.make_node("TopK", ["x", "k"], ["y", "z"])
    assert upper_bound(node, data, lambda name: np.array([-2]) if name == "k" else None) is None
    assert upper_bound(node, data, lambda name: np.array([2]) if name == "k" else None) == [(3, 2), (3, 2)]


def test_a_bug_in_a_formula_is_no_malformed_model(monkeypatch):
    """Whatever a formula raises by mistake escapes as it is, and shows its traceback."""

    def faulty(_operation):
        return {}["missing"]

    monkeypatch.setitem(FORMULAS, ("", "Faulty"), faulty)
    with pytest.raises(KeyError, match="missing"):
        measure(Graph((), {}, ()), Node("odd", "Faulty", "", (), ()))


@pytest.mark.slow
def test_a_malformed_control_flow_node_is_named_or_inferred(tmp_path):
    draw = random.Random(7)
    refused = inferred = 0
    for _ in range(200):
        parts = [draw.sample("xyz", draw.randint(0, 3)) for _ in range(3)]
        inner = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["r"], "relu")],
            "inner",
            [helper.make_tensor_value_info(f"i{name}", onnx.TensorProto.FLOAT, [3]) for name in parts[0]],
            [helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [3]) for _ in parts[1]],
        )
        op_type = draw.choice(["If", "Loop", "Scan"])
        wanted = ["then_branch", "else_branch"] if op_type == "If" else ["body"]
        bodies = dict.fromkeys(wanted if draw.random() < 0.8 else ["else_branch"], inner)
        numbers = {"num_scan_inputs": draw.randint(-1, 3)} if draw.random() < 0.7 else {}
        outputs = [f"o{index}" for index in range(draw.randint(1, 2))]
        node = helper.make_node(op_type, parts[2], outputs, "odd", **bodies, **numbers)
        onnx.save(model([node], {"x": (3,), "y": (3,), "z": ()}, dict.fromkeys(outputs)), tmp_path / "m.onnx")
        try:
            load_model(tmp_path / "m.onnx", {})
            inferred += 1
        except PipelineError as error:
            assert f"m.onnx: node 'odd': not a valid {op_type} (" in str(error)
            refused += 1
    assert min(refused, inferred) > 3
