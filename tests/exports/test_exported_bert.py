"""BERT base with unbound dimensions, against its polynomial in figures."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="comes with requirements-torch.txt")
pytest.importorskip("transformers", reason="comes with requirements-torch.txt")

import sympy

from common.onnx_graph.load import load_model
from common.onnx_graph.work import measure
from tests.exports.exporters import EXPORTERS


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_total_of_bert_base_is_a_polynomial_of_batch_and_seq(exported, exporter):
    graph = load_model(exported("bert", "full", exporter), {}, symbolic=True).graph
    total = sympy.sympify(str(sum(measure(graph, node).macs for node in graph.nodes)))
    batch, seq = sorted(total.free_symbols, key=str)
    # 12 · 2 · 768 of scores and values, 12 · (4 · 768² + 2 · 768 · 3072) of projections and MLP, 768² of the pooler
    assert total == 18432 * batch * seq**2 + 84934656 * batch * seq + 589824 * batch
