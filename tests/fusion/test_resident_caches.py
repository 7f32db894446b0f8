"""A cache stays on the side where it is extended: what crosses the link for a token is the token."""

from __future__ import annotations

import pytest

from common.fusion.border import border, crossings
from common.graphs.source_graph import from_rows, with_resident_caches
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model
from common.onnx_graph.rows import edge_rows, metrics_row
from models.__main__ import BUILDERS, save


def source(tmp_path, name, sizes):
    save(BUILDERS[name](), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx", {"batch": 1, **sizes})
    counts = {count.node.name: count for count in count_nodes(model.graph, None)}
    return from_rows((metrics_row(model, count) for count in counts.values()), [*edge_rows(model.graph, counts)])


GROWN = {"seq": 1, "past": 400}
BUFFER = {"sequence_length": 1, "past_sequence_length": 512, "total_sequence_length": 401}


@pytest.mark.parametrize(
    ("name", "sizes", "crossing"),
    [
        ("tiny-decoder", GROWN, ("attention_mask", "input_ids", "logits", "position_ids")),
        ("tiny-grouped-decoder", BUFFER, ("attention_mask", "input_ids", "logits")),
        ("tiny-state-space", {"seq": 1}, ("input_ids", "logits")),
        ("tiny-speech-decoder", GROWN | {"frames": 100}, ("input_ids", "logits")),
    ],
)
def test_no_cache_crosses_the_link(tmp_path, name, sizes, crossing):
    graph = source(tmp_path, name, sizes)
    assert len(crossings(graph, {*graph.nodes})) > len(crossing)
    assert crossings(with_resident_caches(graph), {*graph.nodes}) == crossing


def test_a_resident_cache_takes_memory_as_weights_do(tmp_path):
    """400 keys of 2 groups of 16, and as many values, in each of 2 layers."""
    graph = with_resident_caches(source(tmp_path, "tiny-decoder", GROWN))
    kept = {one.tensor: one.size_bytes for one in border(graph, graph.nodes) if "past" in one.tensor}
    assert {one.role for one in border(graph, graph.nodes) if "past" in one.tensor} == {"weight"}
    assert sum(kept.values()) == 2 * 2 * 400 * 2 * 16 * 4


def test_a_model_without_caches_is_as_it_was(tmp_path):
    graph = source(tmp_path, "tiny-mlp", {})
    assert with_resident_caches(graph) == graph
