"""The energy estimate of a run: from the tables of its nodes and its power to energy, efficiency, cost and notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.files.configuration import Constant, IntervalPoint
from common.graphs.grouping import grouped
from common.messages.names import listed
from common.power.bounded_value import MODELLED, BoundedValue, independent_sum, value_at
from common.power.division import RunEnergy, run_energy
from common.power.efficiency import Host, MillionInferences, WholeRun, efficiency, million_inferences
from common.power.energy_model import CostFactors, EnergyModel
from common.power.host_power import HostPower
from common.power.measured import PowerSample, average_power, counted_domains, idle_power
from common.power.node_energy import UJ_PER_PJ, NodeWork, compute_roof_us, dram_bytes, total_bytes, total_flops
from common.table_rows import (
    EfficiencyDocument,
    EnergySummaryDocument,
    OpRooflineRow,
    OpsProfileRow,
    PowerSamplesRow,
    RunLatencyRow,
)

MOST_NAMED = 3  # nodes that a note names
POINTS: tuple[IntervalPoint, ...] = ("likely", "low", "high")
GPU_PROVIDERS = ("CUDA", "Tensorrt", "NvTensorRT")
CPU_PROVIDERS = ("CPU", "OpenVINO", "Dnnl", "Xnnpack")  # OpenVINO's default device is the processor


@dataclass(frozen=True, slots=True)
class KnownPower:
    """Power of the host as far as it is known; None is unknown."""

    # Over the runs, measured or given; it comes before ``modelled``, which the processor's name gives
    average: BoundedValue | None
    static: BoundedValue | None  # of the idle host, measured or given
    modelled: HostPower | None
    idle_fraction: BoundedValue  # static over average power where only the average is known


@dataclass(frozen=True, slots=True)
class EnergyEstimate:
    """Estimate of one run; nodes are in the order in which they were given."""

    energy: RunEnergy
    summary: EnergySummaryDocument
    efficiency: EfficiencyDocument
    million: MillionInferences
    notes: tuple[str, ...]


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
    readings = grouped(
        (row["phase"], PowerSample(1e-6 * row["time_us"], row["sensor_domain"], row["measured_power_w"]))
        for row in samples
    )
    domains = counted_domains([row["sensor_domain"] for row in samples], with_gpu=provider.startswith(GPU_PROVIDERS))
    return average_power(readings.get("run", ()), domains, start_s, end_s), idle_power(
        readings.get("idle", ()), domains
    )


def estimate(
    works: Mapping[str, NodeWork],
    run_us: float,
    threads: int,
    *,
    power: KnownPower,
    dram_pj_per_byte: Constant,
    model: EnergyModel,
    factors: CostFactors,
    host: Host,
) -> EnergyEstimate:
    """Estimate energy, efficiency and cost of one run, from the work of every executed node and of the gap, by name.

    ``dram_pj_per_byte`` is what the traffic of a modelled memory costs; ``model`` divides the energy over the nodes.

    Raises:
        PipelineError: static power is above average power, or no node has work to divide by.
    """
    nodes, cache_bytes = list(works.values()), host.last_level_cache_bytes
    average = power.average or modelled_average(power.modelled, nodes, run_us, cache_bytes, dram_pj_per_byte)
    static = power.static or modelled_static(power, average)
    energy = run_energy(nodes, run_us, model, cache_bytes, static_power=static, average_power=average)
    roof_us = compute_roof_us(nodes, host.peaks_flop_per_s)
    whole = WholeRun(run_us, threads, total_flops(nodes), total_bytes(nodes), energy.total, roof_us)
    million = million_inferences(whole, factors)
    boundary = power.modelled.boundary if power.modelled and not power.average else ""
    return EnergyEstimate(
        energy=energy,
        summary=summarise(energy, run_us, static, boundary),
        efficiency=efficiency(whole, host, million),
        million=million,
        notes=tuple(energy_notes(energy, list(works), model, power, static, host)),
    )


def modelled_average(
    modelled: HostPower | None,
    works: Sequence[NodeWork],
    run_us: float,
    cache_bytes: float | None,
    pj_per_byte: Constant,
) -> BoundedValue | None:
    """Return the power of packages and memory over a run, with the traffic of the memory where it is known."""
    if modelled is None:
        return None
    likely, low, high = (
        UJ_PER_PJ * float(dram_bytes(works, cache_bytes, point).sum()) * pj_per_byte.at(point) / run_us
        for point in POINTS
    )
    if math.isnan(likely):
        return modelled.average
    return independent_sum(modelled.average, BoundedValue(likely, low, high, MODELLED))


def modelled_static(power: KnownPower, average: BoundedValue | None) -> BoundedValue | None:
    """Return the static power that a model gives.

    A known average may be that of another part of the machine than the model's, such as a meter's. Static power is then
    the idle share of it.
    """
    if power.average is None or average is None:
        return power.modelled.static if power.modelled else None
    fraction = power.idle_fraction
    if power.modelled:
        static, whole = power.modelled.static, power.modelled.average.likely
        fraction = BoundedValue(static.likely / whole, static.low / whole, static.high / whole, MODELLED)
    likely, low, high = (average.likely * min(1.0, share) for share in (fraction.likely, fraction.low, fraction.high))
    return BoundedValue(likely, low, high, MODELLED)


def summarise(
    energy: RunEnergy, run_us: float, static_power: BoundedValue | None, boundary: str
) -> EnergySummaryDocument:
    """Return the total of the run and its three causes; average power is energy over latency."""
    division, total_uj = energy.division, energy.total
    return {
        "energy_source": total_uj.source if total_uj else "unavailable",
        "energy_boundary": boundary,
        "average_power_w": total_uj.likely / run_us if total_uj else None,
        "static_power_w": value_at(static_power, "likely"),
        "static_power_source": static_power.source if static_power else "unavailable",
        "energy_uj": value_at(total_uj, "likely"),
        "energy_low_uj": value_at(total_uj, "low"),
        "energy_high_uj": value_at(total_uj, "high"),
        "compute_energy_uj": _known(math.fsum(division.compute_uj)),
        "movement_energy_uj": _known(math.fsum(division.movement_uj)),
        "static_energy_uj": _known(math.fsum(division.static_uj)),
        "closure_factor": _known(division.closure_factor),
    }


def _known(value: float) -> float | None:
    """Return a value; None for NaN, which is the unknown in vectors."""
    return None if math.isnan(value) else value


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


def energy_notes(
    energy: RunEnergy,
    names: Sequence[str],
    model: EnergyModel,
    power: KnownPower,
    static_power: BoundedValue | None,
    host: Host,
) -> Iterator[str]:
    """Yield one line, with a remedy, for each limit on the trust in the energy; ``names`` are those of its nodes."""
    if energy.unknown:
        shown = listed([names[position] for position in energy.unknown], MOST_NAMED)
        taken = "the mean power of the other nodes is assumed" if energy.is_divided else "the energy cannot be divided"
        remedy = f"says what is unknown of each; <energy_model> takes number formats that {model.name} lacks"
        yield f"energy: FLOPs, bytes or pJ per FLOP unknown for {shown}; {taken}; <op_metrics> {remedy}"
    yield from _power_notes(power, static_power)
    if not host.last_level_cache_bytes:
        problem = "the size of the last-level cache is unknown, so all bytes count as DRAM traffic"
        yield f"energy: {problem}; run <host_ceilings>"
    low, high = energy.expected_closure
    if power.average and energy.is_divided and not low <= energy.division.closure_factor <= high:
        yield (
            f"energy: closure factor {energy.division.closure_factor:.3g} is outside {low:.2g} to {high:.2g}, "
            f"the range of {model.name}; power and model describe different parts of the machine; check the power, "
            "<static_power_w> and <energy_model>"
        )


def _power_notes(power: KnownPower, static_power: BoundedValue | None) -> Iterator[str]:
    remedy = "rerun <power_samples> where RAPL or NVML can be read, or give <avg_power_w>"
    if power.average is None and power.modelled is None:
        problem = "no measured power, and the power of what ran the model is unknown; the energy is unknown"
        yield f"energy: {problem}; {remedy} or <cpu>"
    elif power.average is None and power.modelled:
        counted = f"{power.modelled.name}; {power.modelled.boundary}"
        yield f"energy: no measured power; the processor's name predicts it ({counted}); {remedy}"
        for text in power.modelled.notes:
            yield f"energy: {text}; give <cpu>, or <avg_power_w> of the machine"
    elif static_power and static_power.source == MODELLED:
        yield (
            f"energy: static power is modelled, {static_power.likely:.3g} W; its error counts as dynamic energy; "
            "measure the idle host and give <static_power_w>"
        )
