"""Figures of an NPU's profile. The emulator's times are left out: no finding follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from common.bottlenecks.rules import Facts
from common.table_rows import NpuNodesRow, NpuRunsRow

CONTRACTIONS = ("Conv2d", "Conv3d", "DepthWiseConv2d", "FullyConnected", "MatMul", "TransposeConv2d")


def npu_node_facts(nodes: Sequence[NpuNodesRow]) -> list[dict[str, object]]:
    moved = [_sum(row["dram_read_bytes"], row["dram_write_bytes"]) for row in nodes]
    total = sum(size or 0 for size in moved)
    return [
        {
            **row,
            **_op_shares([row]),
            "dram_bytes": size,
            "dram_bytes_share": size / total if total and size is not None else None,
        }
        for row, size in zip(nodes, moved, strict=True)
    ]


def npu_run_facts(runs: Sequence[NpuRunsRow], nodes: Sequence[NpuNodesRow], summary: Mapping[str, object]) -> Facts:
    """Return the figures of the runs: waits with their least and most, operators by unit, and npu_summary's."""
    op_types = [row["qnn_op_type"] for row in nodes]
    contractions = sum(op_type in CONTRACTIONS for op_type in op_types) if any(op_types) else None
    resources = summary.get("resource_utilization")
    return {
        "npu_runs": _waits([row for row in runs if not row["is_emulated"]]),
        "npu_nodes": {**_op_shares(nodes), "contraction_count": contractions},
        "npu_summary": resources if isinstance(resources, dict) else {},
    }


def _waits(runs: Sequence[NpuRunsRow]) -> dict[str, object]:
    """Return what a run waits for, its median and ends; the first run of a session powers the processor up."""
    later = [row for before, row in pairwise(runs) if row["session_index"] == before["session_index"]]
    waits: dict[str, list[float]] = {}
    wholes: list[float] = []
    for row in later or runs:
        parts = {
            "vtcm_acquire": row["vtcm_acquire_us"],
            "accelerator_wait": _difference(row["accelerator_us"], row["accelerator_busy_us"]),
            "rpc": _difference(row["rpc_execute_us"], row["qnn_accelerator_us"]),
        }
        if row["qnn_execute_us"]:
            wholes.append(row["qnn_execute_us"])
        for name, value in parts.items():
            if value is not None:
                waits.setdefault(name, []).append(value)
    facts: dict[str, object] = {"qnn_execute_us": median(wholes)} if wholes else {}
    for name, values in waits.items():
        facts |= {f"{name}_us": median(values), f"{name}_low_us": min(values), f"{name}_high_us": max(values)}
        facts[f"{name}_share"] = median(values) / median(wholes) if wholes else None
    return facts


def _op_shares(nodes: Sequence[NpuNodesRow]) -> dict[str, float | None]:
    total = sum(row["htp_op_count"] or 0 for row in nodes)
    counts = {
        "hvx": sum(row["hvx_op_count"] or 0 for row in nodes),
        "hmx": sum(row["hmx_op_count"] or 0 for row in nodes),
        "dma": sum(row["dma_op_count"] or 0 for row in nodes),
    }
    return {f"{unit}_op_share": count / total if total else None for unit, count in counts.items()}


def _sum(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
