"""Inputs of an energy estimate from tables (the work of nodes, the measured power), and its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.power.bounded_value import BoundedValue
from common.power.division import RunEnergy
from common.power.measured import PowerSample, average_power, counted_domains, idle_power
from common.power.node_energy import NodeWork
from common.table_rows import OpRooflineRow, OpsProfileRow, PowerSamplesRow, RunLatencyRow

GPU_PROVIDERS = ("CUDA", "Tensorrt", "NvTensorRT")
CPU_PROVIDERS = ("CPU", "OpenVINO", "Dnnl", "Xnnpack")  # OpenVINO's default device is the processor


def is_processor_alone(provider: str) -> bool:
    """Return whether the processor ran the whole model: the power of another device does not follow from its name."""
    return provider.startswith(CPU_PROVIDERS)


def node_work(row: OpRooflineRow) -> NodeWork:
    """Return the work of an executed node, or of the gap."""
    flops, weight_bytes = row["flops"], row["weight_bytes"]
    read_bytes, written_bytes = row["input_bytes"], row["output_bytes"]
    return NodeWork(
        latency_us=row["node_latency_us"],
        dtype=row["dtype"],
        flops=None if flops is None else float(flops),
        weight_bytes=None if weight_bytes is None else float(weight_bytes),
        activation_bytes=None if read_bytes is None or written_bytes is None else float(read_bytes + written_bytes),
        is_cache_resident=row["is_above_roof"] and row["bound"] == "memory",
        is_gap=row["row_kind"] == "gap",
        roof=row["roof"],
    )


def measured_power(
    samples: Sequence[PowerSamplesRow], runs: Sequence[RunLatencyRow], provider: str
) -> tuple[BoundedValue | None, BoundedValue | None]:
    """Return the measured power over the runs after the warm-up, and that of the idle host before the runs."""
    counted = [run for run in runs if not run["is_warmup"]]
    start_s = 1e-6 * min((run["start_us"] for run in counted), default=math.nan)
    end_s = 1e-6 * max((run["start_us"] + run["latency_us"] for run in counted), default=math.nan)
    readings: dict[str, list[PowerSample]] = {"idle": [], "run": []}
    for row in samples:
        reading = PowerSample(1e-6 * row["time_us"], row["sensor_domain"], row["measured_power_w"])
        readings.setdefault(row["phase"], []).append(reading)
    domains = counted_domains([row["sensor_domain"] for row in samples], with_gpu=provider.startswith(GPU_PROVIDERS))
    return average_power(readings["run"], domains, start_s, end_s), idle_power(readings["idle"], domains)


def profile_rows(roofline: Sequence[OpRooflineRow], energy: RunEnergy) -> list[OpsProfileRow]:
    division, total = energy.division, energy.total
    source = total.source if total and energy.is_divided else "unavailable"
    vectors = (division.compute_uj, division.movement_uj, division.static_uj, division.energy_uj)
    columns = [[*map(_known, vector.tolist())] for vector in (*vectors, energy.low_uj, energy.high_uj)]
    return [
        {
            "executed_node": row["executed_node"],
            "row_kind": row["row_kind"],
            "op_type": row["op_type"],
            "source_nodes": row["source_nodes"],
            "node_latency_us": row["node_latency_us"],
            "latency_share": row["latency_share"],
            "macs": row["macs"],
            "flops": row["flops"],
            "bytes": row["bytes"],
            "work_source": row["work_source"],
            "compute_energy_uj": compute_uj,
            "movement_energy_uj": movement_uj,
            "static_energy_uj": static_uj,
            "energy_uj": energy_uj,
            "energy_low_uj": low_uj,
            "energy_high_uj": high_uj,
            "energy_share": energy_uj / total.likely if total and energy_uj is not None else None,
            "energy_source": source,
        }
        for row, compute_uj, movement_uj, static_uj, energy_uj, low_uj, high_uj in zip(roofline, *columns, strict=True)
    ]


def _known(value: float) -> float | None:
    """Return a value; None for NaN, which is the unknown in vectors."""
    return None if math.isnan(value) else value
