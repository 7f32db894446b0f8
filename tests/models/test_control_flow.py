"""Loop, Scan, If, local functions and recurrent layers: each small model against the same steps in numpy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.__main__ import BUILDERS
from tests.support.models.quantized_models import feeds_of, graphs_of

NAMES = [
    *(f"tiny-loop{kind}" for kind in ("", "-input", "-condition", "-nested", "-unnamed")),
    *("tiny-scan", "tiny-if", "tiny-if-loop", "tiny-same-names", "tiny-functions"),
    *("tiny-lstm", "tiny-gru", "tiny-rnn"),
]
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def run(model: onnx.ModelProto, level: str = "ORT_DISABLE_ALL", **changed: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds_of(model, {"batch": 2, "seq": 5}) | changed)


def parts(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The model, its weights and what it is fed."""
    model = BUILDERS[name](seed=1)
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return model, weights, feeds_of(model, {"batch": 2, "seq": 5})


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid_and_gives_the_same_at_every_level(name: str) -> None:
    model = BUILDERS[name]()
    onnx.checker.check_model(model, full_check=True)
    plain = run(model)
    assert all(np.isfinite(output).all() and output.std() > 0 for output in plain)
    for level in LEVELS[1:]:
        for expected, actual in zip(plain, run(model, level), strict=True):
            close(actual, expected)
    assert BUILDERS[name](seed=3).SerializeToString() != model.SerializeToString()


@pytest.mark.parametrize(("name", "trips"), [("tiny-loop", 7), ("tiny-loop-input", 3), ("tiny-loop-unnamed", 7)])
def test_the_loop_carries_a_state_and_stacks_its_scan_output(name: str, trips: int) -> None:
    model, weight, feed = parts(name)
    drive, state, states = feed["input"] @ weight["drive.weight"], feed["initial"], []
    for _ in range(trips):
        state = np.tanh(state @ weight["recurrent.weight"] + drive)
        states.append(state)
    final, stacked = run(model)
    close(final, state)
    close(stacked, np.stack(states))


def test_the_input_gives_the_number_of_trips() -> None:
    assert run(BUILDERS["tiny-loop-input"](), trips=np.array(13, np.int64))[1].shape == (13, 2, 11)


def test_the_data_end_the_loop() -> None:
    model, weight, feed = parts("tiny-loop-condition")
    for start in (np.zeros((2, 11), np.float32), feed["initial"]):
        state, trips = start, 0
        while trips == 0 or state.sum() < 100:
            state, trips = np.abs(state @ weight["recurrent.weight"]) + state + 1, trips + 1
        assert 1 < trips < 1000
        close(run(model, initial=start)[0], state)


def test_a_loop_in_a_loop() -> None:
    model, weight, feed = parts("tiny-loop-nested")
    state = feed["initial"]
    for _ in range(5):
        state = state @ weight["outer.weight"]
        for _ in range(3):
            state = np.tanh(state @ weight["inner.weight"])
    close(run(model)[0], state)


def test_scans_of_a_cell_in_both_directions() -> None:
    model, weight, feed = parts("tiny-scan")
    halves = []
    for name, order in (("forward", range(5)), ("reverse", range(4, -1, -1))):
        state, seen = feed["initial"], {}
        for frame in order:
            seen[frame] = state = np.tanh(
                feed["input"][frame] @ weight[f"{name}.w.weight"] + state @ weight[f"{name}.r.weight"]
            )
        halves.append(np.stack([seen[frame] for frame in range(5)]))
    close(run(model)[0], np.concatenate(halves, 2))


def choose(x: np.ndarray, weight: dict[str, np.ndarray], wide: bool) -> np.ndarray:
    if wide:
        return np.maximum(x @ weight["first.weight"], 0) @ weight["second.weight"]
    return np.maximum(x @ weight["direct.weight"], 0)


@pytest.mark.parametrize("wide", [True, False])
def test_an_if_on_an_input(wide: bool) -> None:
    model, weight, feed = parts("tiny-if")
    close(run(model, wide=np.array(wide))[0], choose(feed["input"], weight, wide))
    then, otherwise = (attribute.g for attribute in model.graph.node[0].attribute)
    shared = [{name for node in body.node for name in node.output} for body in (then, otherwise)]
    assert shared[0] & shared[1] == {"product", "result"}


@pytest.mark.parametrize("name", ["tiny-if-loop", "tiny-same-names"])
def test_an_if_in_a_loop_takes_the_wide_branch_three_times_of_seven(name: str) -> None:
    model, weight, feed = parts(name)
    state = feed["initial"]
    for trip in range(7):
        state = np.tanh(choose(state, weight, trip < 3))
    close(run(model)[0], state)


def test_equal_names_stand_in_different_graphs_only() -> None:
    graphs = list(graphs_of(BUILDERS["tiny-same-names"]().graph))
    names = [[node.name for node in graph.node] for graph in graphs]
    assert [len(set(own)) for own in names] == [len(own) for own in names]
    assert Counter(name for own in names for name in own)["MatMul_0"] == 3


def test_no_node_of_the_unnamed_loop_has_a_name() -> None:
    graphs = list(graphs_of(BUILDERS["tiny-loop-unnamed"]().graph))
    assert len(graphs) == 2
    assert {node.name for graph in graphs for node in graph.node} == {""}


def test_functions_in_functions_called_twice() -> None:
    model, weight, feed = parts("tiny-functions")
    x = feed["input"]
    for layer in ("layer0", "layer1"):
        x = x @ weight[f"{layer}.weight"] + weight[f"{layer}.bias"]
        x = np.where(x > 0, x, 0.1 * x)
    close(run(model)[0], x)
    assert [node.op_type for node in model.graph.node] == ["Dense", "Dense"]
    assert {function.name for function in model.functions} == {"Dense", "Leaky"}


@pytest.mark.parametrize(("name", "gates", "layers"), [("tiny-lstm", 4, 2), ("tiny-gru", 3, 1), ("tiny-rnn", 1, 1)])
def test_recurrent_layers_have_two_directions_of_seven(name: str, gates: int, layers: int) -> None:
    model, weight, _ = parts(name)
    kind = name.removeprefix("tiny-")
    found = Counter(node.op_type for node in model.graph.node)
    assert found[kind.upper()] == layers
    for layer, width in zip(range(layers), (13, 14), strict=False):
        shapes = [weight[f"{kind}{layer}.{part}"].shape for part in "WRB"]
        assert shapes == [(2, 7 * gates, width), (2, 7 * gates, 7), (2, 14 * gates)]
    assert run(model)[0].shape == (5, 2, 5)


def test_the_plain_recurrent_layer_reads_both_ways() -> None:
    model, weight, feed = parts("tiny-rnn")
    halves = []
    for way, order in enumerate((range(5), range(4, -1, -1))):
        w, r, b = (weight[f"rnn0.{part}"][way] for part in "WRB")
        state, seen = np.zeros((2, 7)), {}
        for frame in order:
            seen[frame] = state = np.tanh(feed["input"][frame] @ w.T + state @ r.T + b[:7] + b[7:])
        halves.append(np.stack([seen[frame] for frame in range(5)]))
    close(run(model)[0], np.concatenate(halves, 2) @ weight["head.weight"].T)
