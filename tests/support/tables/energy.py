"""Synthetic tables of the stages before 05: a model of two convolutions, a reorder and a Gemm, in prime numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction

MODEL_ID = "ab" * 32
THREADS = 2
GIB = 2**30
HOST = {
    "cpu_model": "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz",
    "cpu_signature": [6, 85],
    "cpu_count": 64,
    "core_count": 32,
    "package_count": 2,
    "is_virtual": False,
    "memory_bytes": 96 * GIB,
}
P50_US = 1000.0

# name, kind, operator, latency µs, FLOPs, weight bytes, input bytes, output bytes
NODES: tuple[tuple[Any, ...], ...] = (
    ("conv_a", "node", "Conv", 503.0, 7_000_003, 1_009, 20_011, 10_007),
    ("reorder", "inserted", "ReorderOutput", 31.0, 0, 0, 10_007, 10_007),
    ("gemm_b", "node", "Gemm", 401.0, 3_000_017, 300_007, 10_007, 4_001),
    ("(gap)", "gap", "", 65.0, None, None, None, None),
)


def provenance(
    stage: str,
    settings: dict[str, Any] | None = None,
    *,
    model_id: str = MODEL_ID,
    host: dict[str, Any] | None = None,
) -> Provenance:
    recorded = {name: {"value": value, "from": "flag"} for name, value in (settings or {}).items()}
    facts = dict(HOST if host is None else host)
    return Provenance(stage, stage, recorded, model_id=model_id, model_path="synthetic.onnx", host=facts)


def roofline_row(node: tuple[Any, ...]) -> dict[str, Any]:
    name, kind, op_type, latency_us, flops, weight, inputs, outputs = node
    traffic = None if None in (weight, inputs, outputs) else weight + inputs + outputs
    return {
        "executed_node": name,
        "row_kind": kind,
        "op_type": op_type,
        "domain": "",
        "execution_index": None,
        "events_per_run_count": None if kind == "gap" else 1,
        "source_nodes": [name] if kind == "node" else [],
        "op_types": [op_type] if kind == "node" else [],
        "layout_of": "",
        "dtype": "" if kind == "gap" else "float32",
        "macs": None if flops is None else flops // 2,
        "executed_macs": None if flops is None else flops // 2,
        "flops": flops,
        "weight_bytes": weight,
        "input_bytes": inputs,
        "output_bytes": outputs,
        "bytes": traffic,
        "work_source": "" if flops is None else "counted",
        "raw_total_us": 0.0,
        "raw_median_us": max(latency_us, 0.0),
        "node_latency_us": latency_us,
        "latency_share": latency_us / P50_US,
        "is_correction_dominated": False,
        "arithmetic_intensity_flop_per_byte": None,
        "attained_flop_per_s": None,
        "attained_bytes_per_s": None,
        "attainable_flop_per_s": None,
        "roof": "" if kind == "gap" else "fp32",
        "roof_share": None,
        "is_above_roof": False,
        "roof_share_reason": "",
        "bound": "",
    }


def latency_summary(**changes: Any) -> dict[str, Any]:
    """Every number 1, the texts and what 05 reads as given here, then ``changes``."""
    content: dict[str, Any] = {
        column.name: {} if column.kind == "mapping" else 1 for column in ARTIFACTS["latency_summary"].columns
    }
    content |= {"provider": "CPUExecutionProvider", "graph_optimization": "all", "threads": THREADS, "p50_us": P50_US}
    content |= {"steady_state": "flat", "is_alternating": True}
    return content | changes


def host_ceilings(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {column.name: 1 for column in ARTIFACTS["host_ceilings"].columns}
    content |= {
        "threads": THREADS,
        "cpu_model": "synthetic",
        "peak_operator": "MatMul",
        "int8_operator": "MatMulInteger",
        "stable": True,
        "last_level_cache_bytes": 65_536,
        "peak_flop_per_s": 5e10,
        "memory_bytes_per_s": 2e9,
        **{f"{name}_halves_difference_share": 0.01 for name in ("peak", "int8", "memory")},
        "lost_to_threads_share": 0.0,
    }
    return content | changes


def write_upstream(
    folder: Path,
    *,
    nodes: tuple[tuple[Any, ...], ...] = NODES,
    rows: dict[str, dict[str, Any]] | None = None,
    latency: dict[str, Any] | None = None,
    power: list[tuple[Any, ...]] | None = None,
    ceilings: dict[str, Any] | None = None,
    roofline_settings: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
) -> None:
    """Write what 05 reads, as the stages before it would.

    Args:
        folder: folder of the tables.
        nodes: rows of op_roofline in short.
        rows: cells of op_roofline to change, by node and column.
        latency: fields of latency_summary to change.
        power: (sensor, domain, time_us, watts), taken while the model ran where time_us is not negative.
        ceilings: fields of host_ceilings to change; None writes none.
        roofline_settings: what 03 is said to have been given.
        host: facts of the sidecars; None gives those of a machine of two packages.
    """
    runs = [
        {"is_profiled": False, "run_index": k, "is_warmup": k == 0, "start_us": k * 1e6, "latency_us": 1e6}
        for k in range(4)
    ]
    sensors = pd.DataFrame(power or [], columns=["sensor", "sensor_domain", "time_us", "measured_power_w"])
    sensors["phase"] = ["idle" if time_us < 0 else "run" for time_us in sensors["time_us"]]
    with Transaction(folder, provenance("01_profile_onnx.py", host=host)) as measured:
        measured.add_table("run_latency", pd.DataFrame(runs))
        measured.add_table("power_samples", sensors)
        measured.add_document("latency_summary", latency_summary(**(latency or {})))
    with Transaction(folder, provenance("03_merge_profile_metrics.py", roofline_settings)) as merged:
        table = [roofline_row(node) | (rows or {}).get(node[0], {}) for node in nodes]
        merged.add_table("op_roofline", pd.DataFrame(table))
    if ceilings is not None:
        with Transaction(folder, provenance("00_host_ceilings.py", model_id="")) as shared:
            shared.add_document("host_ceilings", host_ceilings(**ceilings))
