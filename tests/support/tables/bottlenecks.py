"""Rows of the tables that rules of bottlenecks judge: a chain of executed nodes with times in prime numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from common.artifacts.columns import COLUMNS
from common.bottlenecks.rules import read_rules
from common.files.configuration import Section
from tests.support.paths import ROOT
from tests.support.tables.energy import P50_US, roofline_row

CPU = "CPUExecutionProvider"
FILE = ROOT / "configs/bottlenecks.yaml"
RULES = {rule.name: rule for rule in read_rules(Section.of_file(FILE), COLUMNS)}
SUMMARY = {
    "provider": CPU,
    "graph_optimization": "all",
    "threads": 3,
    "p50_us": P50_US,
    "first_run_us": 3 * P50_US,
    "steady_state": "flat",
    "steady_start_index": 0,
}


def node(name: str, op_type: str = "Relu", latency_us: float = 101.0, **changes: Any) -> dict[str, Any]:
    """A node with cells of op_roofline and op_latency, changed where ``changes`` says so."""
    timed = {
        "provider": CPU,
        "uses_thread_pool": True,
        "pool_thread_count": 3.0,
        "pool_balance_share": 1.0,
        "pool_wait_us": 0.0,
        "sample_count": 11,
        "input_shapes": [[2, 3, 5]],
        "output_shapes": [[2, 3, 5]],
        "corrected_std_us": 0.0,
        "corrected_median_us": latency_us,
        "corrected_min_us": latency_us,
        "corrected_p95_us": latency_us,
        "correction_us": 2.0,
        "correction_low_us": 2.0,
        "correction_high_us": 2.0,
    }
    return {**roofline_row((name, "node", op_type, latency_us, 2, 3, 5, 7)), **timed, **changes}


def tables(
    nodes: Sequence[Mapping[str, Any]], edges: Sequence[tuple[str, str]] | None = None, *, gap_us: float = 13.0
) -> dict[str, list[dict[str, Any]]]:
    """Return op_roofline, op_latency and executed_edges; without ``edges``, each node reads the one before it."""
    names = [str(one["executed_node"]) for one in nodes]
    pairs = [*pairwise(names)] if edges is None else edges
    rows = [{**one, "execution_index": index} for index, one in enumerate(nodes)]
    return {
        "op_roofline": [*rows, roofline_row(("(gap)", "gap", "", gap_us, None, None, None, None))],
        "op_latency": rows,
        "executed_edges": [{"producer": one, "consumer": other, "tensor_bytes": 17} for one, other in pairs],
    }
