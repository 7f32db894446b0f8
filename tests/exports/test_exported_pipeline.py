"""Scaled-down exports through 01, 02 and 03 at the runtime's highest optimization: all time has its source nodes."""

from __future__ import annotations

import importlib
import json
from functools import cache
from itertools import chain

import pandas as pd
import pytest

pytest.importorskip("torch", reason="comes with requirements-torch.txt")
pytest.importorskip("transformers", reason="comes with requirements-torch.txt")

from tests.exports.architectures import ARCHITECTURES
from tests.exports.exporters import EXPORTERS

profile, count, merge = (
    importlib.import_module(name) for name in ("01_profile_onnx", "02_shapes_flops_bytes", "03_merge_profile_metrics")
)
MEASURING = ("--runs", "5", "--warmup", "1", "--threads", "1", "--optimization", "all")
# Nothing but movement: what the runtime inserts to change a layout, and what it makes of Shape and Gather (a Shape
# before a Gather that permutes it, where a Transpose moved past them; one Split for the Gathers of every row).
INSERTED = {"ReorderInput", "ReorderOutput", "Transpose", "Reshape", "Cast", "Shape", "Split"}


@pytest.fixture(scope="module")
def staged(exported, tmp_path_factory):
    """The tables of an export: (op_roofline, node_map, op_metrics, latency_summary), each made once."""

    @cache
    def make(architecture, exporter):
        out = tmp_path_factory.mktemp(f"tables-{architecture}-{exporter}")
        dims = (f"--dim={name}={size}" for name, size in ARCHITECTURES[architecture].bindings[0].items())
        flags = ["--model", str(exported(architecture, "small", exporter)), *dims, "--out", str(out), "--quiet"]
        assert count.main(flags) == 0
        assert profile.main([*flags, *MEASURING]) == 0
        assert merge.main(["--out", str(out), "--quiet", "--peak-flops", "1e11", "--mem-bw", "1e10"]) == 0
        roofline, node_map, metrics = (
            pd.read_csv(out / f"{table}.csv", keep_default_na=False, na_values={"macs": ""})
            for table in ("op_roofline", "node_map", "op_metrics")
        )
        roofline["source_nodes"] = roofline["source_nodes"].map(json.loads)
        return roofline, node_map, metrics, json.loads((out / "latency_summary.json").read_text())

    return make


@pytest.fixture(params=[(name, exporter) for name in ARCHITECTURES for exporter in EXPORTERS], ids="-".join)
def tables(request, staged):
    architecture, exporter = request.param
    return architecture, *staged(architecture, exporter)


def test_all_traced_time_has_an_owner(tables):
    _, roofline, _, _, summary = tables
    nodes = roofline[roofline["row_kind"] != "gap"]
    with_sources = nodes["source_nodes"].map(bool)
    serving = nodes["layout_of"].isin(set(nodes.loc[with_sources, "executed_node"]))
    assert set(nodes.loc[~with_sources, "op_type"]) <= INSERTED
    assert summary["trace_total_us"] > 0
    owned_us = nodes.loc[with_sources | serving, "raw_total_us"].sum()
    assert owned_us == pytest.approx(summary["trace_total_us"], rel=1e-12)  # a coverage of 100 %


def test_every_source_node_is_mapped_once(tables):
    _, roofline, node_map, metrics, _ = tables
    assert sorted(node_map["source_node"]) == sorted(metrics["source_node"])
    owned = node_map[node_map["rule"] != "removed"]
    assert sorted(owned["source_node"]) == sorted(chain.from_iterable(roofline["source_nodes"]))


def test_every_heavy_node_is_executed_and_no_two_share_a_kernel(tables):
    _, roofline, node_map, metrics, _ = tables
    macs = metrics.set_index("source_node")["macs"]
    owned = set(node_map.loc[node_map["rule"] != "removed", "source_node"])
    assert set(macs.index[macs > 0]) <= owned
    shared = [sources for sources in roofline["source_nodes"] if sum(macs[source] > 0 for source in sources) > 1]
    assert shared == []


def test_the_work_of_the_closed_form_arrives_in_the_roofline(tables):
    architecture, roofline, _, metrics, _ = tables
    subject = ARCHITECTURES[architecture]
    macs = subject.macs("small", subject.bindings[0])
    assert metrics["macs"].sum() == macs
    assert roofline["macs"].sum() == macs
