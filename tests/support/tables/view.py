"""Synthetic tables of all stages before 06: the executed graph of a ResNet-50, or of any number of nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.checks.schema import conform
from common.artifacts.provenance import Provenance
from common.artifacts.stages import WRITER
from common.artifacts.transaction import Transaction
from tests.support.tables.energy import host_ceilings
from tests.support.tables.fpga import frame
from tests.support.tables.offload import board, comparison, front, plan, speedup, timeline, uncertainty, verdicts

MODEL_ID = "ef" * 32
PEAK, BANDWIDTH = 240e9, 8e9  # ridge at 30 FLOP/byte
HOST = {"hostname": "synthetic", "cpu_model": "Synthetic CPU", "cpu_count": 2}
Tables = dict[str, Any]


def resnet_nodes() -> list[dict[str, Any]]:
    """58 executed nodes: name, operator, µs, FLOPs, bytes, predecessors (by position)."""
    nodes: list[dict[str, Any]] = []

    def add(name: str, op_type: str, us: float, flops: int, size: int, *before: int) -> int:
        nodes.append({"name": name, "op": op_type, "us": us, "flops": flops, "bytes": size, "before": before})
        return len(nodes) - 1

    last = add("/conv1/Conv_output_0_nchwc", "Conv", 4_211.0, 236_027_904, 3_851_000)
    last = add("/maxpool/MaxPool_output_0_nchwc", "MaxPool", 907.0, 1_806_336, 4_014_080, last)
    blocks = (3, 4, 6, 3)
    for layer, count in enumerate(blocks, start=1):
        for block in range(count):
            stem = f"/layer{layer}/layer{layer}.{block}"
            jitter = 1 + 0.07 * ((5 * layer + 3 * block) % 7)
            weights = 16_640 * 4**layer
            activations = 3_211_264 // 2 ** (layer - 1)
            entry = last
            for conv, (us, flops) in enumerate(((780.0, 102_760_448), (1_370.0, 231_211_008), (860.0, 102_760_448)), 1):
                name = f"{stem}/conv{conv}/Conv_output_0_nchwc" if conv < 3 else f"{stem}/relu/Relu_output_0_nchwc"
                size = weights * (9 if conv == 2 else 4) // 4 + activations
                last = add(name, "Conv", us * jitter, flops, size, last)
            if block == 0:
                side = add(f"{stem}/downsample/Conv_nchwc", "Conv", 1_103.0, 205_520_896, 2 * activations, entry)
                nodes[last]["before"] = (*nodes[last]["before"], side)
    last = add("/avgpool/GlobalAveragePool_output_0_nchwc", "GlobalAveragePool", 61.0, 100_352, 409_600, last)
    last = add("ReorderOutput_token_57", "ReorderOutput", 23.0, 0, 16_384, last)
    add("/fc/Gemm", "Gemm", 997.0, 4_097_000, 8_208_192, last)
    order = sorted(range(len(nodes)), key=lambda place: (max(nodes[place]["before"], default=-1) + 1, place))
    # a side branch is listed after the node that needs it; put every node behind what it waits for
    done: list[int] = []
    while len(done) < len(nodes):
        done.append(next(n for n in order if n not in done and all(b in done for b in nodes[n]["before"])))
    return [nodes[place] | {"before": tuple(done.index(b) for b in nodes[place]["before"])} for place in done]


def many_nodes(count: int) -> list[dict[str, Any]]:
    """Four chains side by side, of nodes between 1 and 13 µs."""
    return [
        {
            "name": f"/blocks.{place // 4}/branch{place % 4}/MatMul_{place}",
            "op": ("MatMul", "Add", "Softmax", "LayerNormalization")[place % 4],
            "us": 1.0 + place * 7 % 13,
            "flops": 1_009 * (1 + place % 101),
            "bytes": 10_007 + 13 * place,
            "before": (place - 4,) if place >= 4 else (),
        }
        for place in range(count)
    ]


def executed_edges(nodes: list[dict[str, Any]]) -> pd.DataFrame:
    """A tensor from each node to each that waits for it."""
    pairs = [(nodes[first], node) for node in nodes for first in node["before"]]
    rows = [
        {
            "tensor": f"{one['name']}_out",
            "producer": one["name"],
            "consumer": other["name"],
            "tensor_bytes": one["bytes"],
        }
        for one, other in pairs
    ]
    return pd.DataFrame(rows, columns=["tensor", "producer", "consumer", "tensor_bytes"])


def roofline(nodes: list[dict[str, Any]], gap_us: float) -> pd.DataFrame:
    total_us = sum(node["us"] for node in nodes) + gap_us
    rows = []
    for index, node in enumerate(nodes):
        intensity, rate = node["flops"] / node["bytes"], 1e6 * node["flops"] / node["us"]
        attainable = min(PEAK, BANDWIDTH * intensity)
        share = rate / attainable if attainable else None
        inserted = node["op"].startswith("Reorder")
        rows.append(
            {
                "executed_node": node["name"],
                "row_kind": "inserted" if inserted else "node",
                "op_type": node["op"],
                "execution_index": index,
                "source_nodes": [] if inserted else [re.sub("(_output_0)?(_nchwc)?$", "", node["name"])],
                "op_types": [] if inserted else [node["op"]],
                "dtype": "float32",
                "macs": node["flops"] // 2,
                "flops": node["flops"],
                "bytes": node["bytes"],
                "node_latency_us": node["us"],
                "latency_share": node["us"] / total_us,
                "is_correction_dominated": node["us"] < 50,
                "arithmetic_intensity_flop_per_byte": intensity,
                "attained_flop_per_s": rate,
                "attained_bytes_per_s": 1e6 * node["bytes"] / node["us"],
                "attainable_flop_per_s": attainable,
                "roof": "fp32",
                "roof_share": share,
                "is_above_roof": bool(share and share > 1),
                "roof_share_reason": "cache" if share and share > 1 else None,
                "bound": "compute" if intensity >= PEAK / BANDWIDTH else "memory",
                "raw_total_us": 10 * node["us"],
                "raw_median_us": node["us"],
            }
        )
    gap = {
        "executed_node": "(gap)",
        "row_kind": "gap",
        "node_latency_us": gap_us,
        "latency_share": gap_us / total_us,
        "raw_total_us": 0,
        "raw_median_us": 0,
    }
    return frame("op_roofline", [*rows, gap])


def schedule(nodes: list[dict[str, Any]]) -> pd.DataFrame:
    start, finish = [0.0] * len(nodes), [0.0] * len(nodes)
    for index, node in enumerate(nodes):
        start[index] = max((finish[b] for b in node["before"]), default=0.0)
        finish[index] = start[index] + node["us"]
    span = max(finish)
    latest = [span] * len(nodes)  # latest finish
    for index in reversed(range(len(nodes))):
        for b in nodes[index]["before"]:
            latest[b] = min(latest[b], latest[index] - nodes[index]["us"])
    path, at = set(), finish.index(span)
    while True:
        path.add(at)
        if not nodes[at]["before"]:
            break
        at = max(nodes[at]["before"], key=finish.__getitem__)
    rows, clock = [], 0.0
    for index, node in enumerate(nodes):
        rows.append(
            {
                "executed_node": node["name"],
                "op_type": node["op"],
                "execution_index": index,
                "node_latency_us": node["us"],
                "earliest_start_us": start[index],
                "earliest_finish_us": finish[index],
                "latest_start_us": max(latest[index] - node["us"], start[index]),
                "slack_us": max(latest[index] - node["us"] - start[index], 0.0),
                "is_critical": index in path,
                "sequential_start_us": clock,
                "sequential_finish_us": clock + node["us"],
            }
        )
        clock += node["us"]
    return frame("op_schedule", rows)


def critical_path(scheduled: pd.DataFrame) -> pd.DataFrame:
    path = scheduled[scheduled["is_critical"]]
    span = path["node_latency_us"].sum()
    return pd.DataFrame(
        {
            "position_index": range(len(path)),
            "executed_node": list(path["executed_node"]),
            "op_type": list(path["op_type"]),
            "node_latency_us": list(path["node_latency_us"]),
            "cumulative_us": list(path["node_latency_us"].cumsum()),
            "span_share": list(path["node_latency_us"] / span),
        }
    )


def profile(roofline_table: pd.DataFrame) -> pd.DataFrame:
    kept = [column.name for column in ARTIFACTS["ops_profile"].columns if column.name in roofline_table]
    table = roofline_table[kept].copy()
    table["compute_energy_uj"] = table["flops"].astype(float).fillna(0) * 36e-6
    table["movement_energy_uj"] = table["bytes"].astype(float).fillna(0) * 170e-6
    table["static_energy_uj"] = table["node_latency_us"].astype(float) * 1.5
    table["energy_uj"] = table[["compute_energy_uj", "movement_energy_uj", "static_energy_uj"]].sum(axis=1)
    table["energy_low_uj"], table["energy_high_uj"] = table["energy_uj"] * 0.6, table["energy_uj"] * 2
    table["energy_share"] = table["energy_uj"] / table["energy_uj"].sum()
    table["energy_source"] = "modelled"
    return table


def energy_summary(profile_table: pd.DataFrame) -> dict[str, Any]:
    causes = {name: float(profile_table[name].sum()) for name in profile_table if name.endswith("energy_uj")}
    total = causes["energy_uj"]
    return {
        "energy_source": "modelled",
        "energy_boundary": "the package and memory",
        "average_power_w": total / float(profile_table["node_latency_us"].sum()),
        "static_power_w": 1.5,
        "static_power_source": "modelled",
        "energy_low_uj": 0.6 * total,
        "energy_high_uj": 2 * total,
        "closure_factor": 1.0,
        **causes,
    }


def efficiency(summary: Mapping[str, Any], p50_us: float) -> dict[str, Any]:
    joules = summary["energy_uj"] * 1e-6
    return {column.name: 1.0 for column in ARTIFACTS["efficiency"].columns} | {
        "energy_source": "modelled",
        "p50_us": p50_us,
        "joules_per_inference_j": joules,
        "joules_per_inference_low_j": 0.6 * joules,
        "joules_per_inference_high_j": 2 * joules,
        "inferences_per_joule": 1 / joules,
        "whole_model_flop_per_s": 41e9,
        "peak_share": 41 / 60,
        "million_inferences_gco2e": 211.0,
        "million_inferences_energy_usd": 0.13,
        "million_inferences_host_usd": 1.7,
    }


def runs(p50_us: float, count: int, warmup: int) -> pd.DataFrame:
    rows = []
    for is_profiled in (False, True):
        for index in range(count + warmup):
            noise = 0.01 * (index * 37 % 11) + (0.3 if index % 41 == 40 else 0)
            slow = 3.1 if index == 0 else 1.2 if index < warmup else 1.0
            latency = p50_us * slow * (1 + noise) * (1.04 if is_profiled else 1.0)
            rows.append(
                {
                    "is_profiled": is_profiled,
                    "run_index": index,
                    "is_warmup": index < warmup,
                    "start_us": index * 2.2 * p50_us,
                    "latency_us": latency,
                }
            )
    return pd.DataFrame(rows)


def latency_summary(p50_us: float, run_table: pd.DataFrame) -> dict[str, Any]:
    kept = run_table[~run_table["is_warmup"] & ~run_table["is_profiled"]]["latency_us"]
    content: dict[str, Any] = {
        column.name: {} if column.kind == "mapping" else 1 for column in ARTIFACTS["latency_summary"].columns
    }
    content |= {"provider": "CPUExecutionProvider", "graph_optimization": "all", "threads": 2, "is_alternating": True}
    for name, share in {"p50": 0.5, "p90": 0.9, "p95": 0.95}.items():
        value = float(kept.quantile(share))
        content |= {f"{name}_us": value, f"{name}_low_us": 0.99 * value, f"{name}_high_us": 1.02 * value}
    for name in ("p99", "p99_9"):
        content |= {f"{name}_us": None, f"{name}_low_us": None, f"{name}_high_us": None}
    return content | {
        "sample_count": len(kept),
        "profiled_sample_count": len(kept),
        "warmup_count": 10,
        "steady_state": "warm-up",
        "steady_start_index": 7,
        "mean_us": float(kept.mean()),
        "jitter_us": float(kept.std()),
        "min_us": float(kept.min()),
        "max_us": float(kept.max()),
        "profiled_median_us": 1.04 * p50_us,
        "profiling_overhead_fraction": 0.04,
        "first_run_us": 3.1 * p50_us,
        "session_creation_us": 5 * p50_us,
    }


def hardware_counters() -> dict[str, Any]:
    content: dict[str, Any] = {column.name: 1 for column in ARTIFACTS["hardware_counters"].columns}
    shares = {"vector_instruction_share": 0.671, "cache_miss_share": 0.067, "counted_share": 1.0}
    return content | {"counter_source": "perf stat", "instructions_per_cycle": 2.03, **shares}


def bottlenecks(roofline_table: pd.DataFrame) -> pd.DataFrame:
    slowest = roofline_table[roofline_table["row_kind"] == "node"].nlargest(3, "node_latency_us")
    rows = [
        {
            "finding_index": index,
            "finding": "below_compute_roof",
            "is_near_miss": False,
            "also_found_by": [],
            "finding_subject": row["executed_node"],
            "executed_nodes": [row["executed_node"]],
            "gain_us": row["node_latency_us"] / 4,
            "gain_low_us": row["node_latency_us"] / 5,
            "gain_high_us": row["node_latency_us"] / 3,
            "span_gain_us": row["node_latency_us"] / 4,
            "doubts": [],
            "conditions": ["roof_share < 0.25"],
            "evidence": {"op_roofline": {"flops": row["flops"]}},
            "hazard": "Another shape is another model.",
            "remedy": "Try a larger batch.",
            "rule_source": "a rule of this test",
        }
        for index, row in enumerate(slowest.to_dict("records"))
    ]
    return frame("bottlenecks", rows)


def candidates(roofline_table: pd.DataFrame) -> pd.DataFrame:
    nodes = roofline_table[roofline_table["row_kind"] == "node"].nlargest(40, "node_latency_us")
    rows = [
        {
            "candidate": f"G{rank}",
            "kernel_kind": "conv",
            "kernel_class": "conv 3x3",
            "pattern": "Conv+Relu",
            "group_count": 1,
            "source_nodes": row["source_nodes"],
            "executed_nodes": [row["executed_node"]],
            "host_latency_us": row["node_latency_us"],
            "host_latency_share": row["latency_share"],
            "is_chosen": rank % 2 == 0,
            "reason": "conv 3x3: large, regular, intense and fusable",
        }
        for rank, row in enumerate(nodes.to_dict("records"), start=1)
    ]
    return frame("fpga_candidates", rows)


def all_tables(nodes: list[dict[str, Any]] | None = None, *, run_count: int = 100) -> Tables:
    """Every table and document that 06 reads, agreeing with each other."""
    nodes = nodes or resnet_nodes()
    gap_us = 0.02 * sum(node["us"] for node in nodes)
    p50_us = sum(node["us"] for node in nodes) + gap_us
    roof, scheduled, series = roofline(nodes, gap_us), schedule(nodes), runs(p50_us, run_count, 10)
    energies = profile(roof)
    summary = energy_summary(energies)
    tables = {
        "host_ceilings": host_ceilings(peak_flop_per_s=PEAK, memory_bytes_per_s=BANDWIDTH, busy_processor_count=0.1),
        "run_latency": series,
        "latency_summary": latency_summary(p50_us, series),
        "hardware_counters": hardware_counters(),
        "op_roofline": roof,
        "executed_edges": executed_edges(nodes),
        "critical_path": critical_path(scheduled),
        "op_schedule": scheduled,
        "ops_profile": energies,
        "energy_summary": summary,
        "efficiency": efficiency(summary, p50_us),
        "bottlenecks": bottlenecks(roof),
        "fpga_candidates": candidates(roof),
        "offload_plan": plan(p50_us),
        "offload_schedule": timeline(),
        "offload_comparison": comparison(p50_us),
        "board_resources": board(),
        "speedup": (gains := speedup(p50_us, summary["energy_uj"])),
        "offload_verdict": verdicts(gains),
        "offload_uncertainty": uncertainty(),
        "offload_front": front(p50_us),
    }
    return {
        name: conform(name, content) if isinstance(content, pd.DataFrame) else content
        for name, content in tables.items()
    }


def write(
    folder: Path, tables: Tables, *, model_id: str = MODEL_ID, notes: Mapping[str, list[str]] | None = None
) -> Path:
    """Write tables as their stages would.

    Args:
        folder: folder of the tables.
        tables: tables and documents, by artifact.
        model_id: model of every artifact that has one.
        notes: notes of each stage, by script.
    """
    for script in dict.fromkeys(WRITER[name] for name in tables):
        model = {} if script.startswith("00") else {"model_id": model_id, "model_path": "synthetic.onnx"}
        record = Provenance(script, f"{script} --out {folder.name}", **model)
        record.host, record.tools = dict(HOST), {"onnxruntime": "1.31.0"}
        record.notes = list((notes or {}).get(script, []))
        with Transaction(folder, record) as transaction:
            for name, content in tables.items():
                if WRITER[name] != script:
                    continue
                if isinstance(content, pd.DataFrame):
                    transaction.add_table(name, content)
                else:
                    transaction.add_document(name, content)
    return folder
