"""The figures that a profile of an NPU can have, each with its source, or with the reason why it is unavailable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from common.npu.nodes import BYTES, UNITS, NpuNode, Sources
from common.npu.qhas import Qhas
from common.npu.qnn_profile import QnnProfile, QnnRun
from common.npu.schematic import Schematic

EMULATED = "the profile is of the emulator, whose times mean nothing; record it on a device"
NO_SCHEMATIC = "needs <schematic>, which QNN writes with profiling level optrace"
NO_QHAS = "needs <qhas>, which qnn-profile-viewer makes of a device's op trace"
LINTING = "Qualcomm's native SDK records it (profiling level linting); ONNX Runtime does not"
KIB = 1024
SECTIONS = ("execution_summary", "resource_utilization")


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its source, or None with the reason."""

    value: float | None
    source: str = ""
    unavailable: str = ""


Section = dict[str, Figure]


def missing(reason: str) -> Figure:
    return Figure(None, unavailable=reason)


def median_run(profile: QnnProfile) -> QnnRun:
    """Return the run of median time among those that count; of two in the middle, the faster one."""
    counted = _counted_runs(profile)
    middle = median_low([_total_us(run) or 0 for run in counted])
    return next(run for run in counted if (_total_us(run) or 0) == middle)


def _counted_runs(profile: QnnProfile) -> list[QnnRun]:
    """Return the runs with a time; the first one of each session is left out if there are others."""
    later = [run for before, run in pairwise(profile.runs) if run.session_index == before.session_index]
    return [run for run in later or profile.runs if _total_us(run) is not None] or [*profile.runs]


def _of_median(profile: QnnProfile) -> str:
    """Return in words which run the times belong to."""
    counted, whole = len(_counted_runs(profile)), len(profile.runs)
    middle = f"the median of {counted} runs" if counted % 2 else f"the faster of the two middle runs of {counted}"
    left_out = "" if counted == whole else f" (the first one of each session left out: {whole} in all)"
    return f"of {'the only run' if counted == 1 else middle}{left_out}"


def sections(sources: Sources, nodes: Sequence[NpuNode]) -> dict[str, Section]:
    resources = resource_utilization(sources.profile, nodes, sources.schematic, sources.qhas)
    times = execution_summary(sources.profile)
    times["node_times_ms"] = _node_times(nodes, times["htp_execution_time_ms"])
    return dict(zip(SECTIONS, (times, resources), strict=True))


def execution_summary(profile: QnnProfile) -> Section:
    """Return the times of an inference: all from one run, so that the parts add up to the whole."""
    run, first = median_run(profile), profile.runs[0]
    of_run, of_first = _of_median(profile), "of the first run"
    whole, rpc, device = "QNN (execute) time", "RPC (execute) time", "QNN accelerator (execute) time"
    graph, acquire = "Accelerator (execute) time", "Time for initial VTCM acquire"
    power, threads = "Time for HVX + HMX power on and acquire", "Number of HVX threads used"
    whole = whole if run.netrun_us is None else "NETRUN, EXECUTE"
    times = {
        "total_inference_time_ms": (_total_us(run), whole, of_run),
        "htp_execution_time_ms": (run.accelerator_us, graph, of_run),
        "overhead_ms": (_less(_total_us(run), run.accelerator_us), f"{whole} - {graph}", of_run),
        "overhead_host_ms": (_less(_total_us(run), run.rpc_execute_us), f"{whole} - {rpc}", of_run),
        "overhead_rpc_ms": (_less(run.rpc_execute_us, run.qnn_accelerator_us), f"{rpc} - {device}", of_run),
        "overhead_device_ms": (_less(run.qnn_accelerator_us, run.accelerator_us), f"{device} - {graph}", of_run),
        "vtcm_acquire_time_ms": (run.vtcm_acquire_us, acquire, of_run),
        "vtcm_acquire_time_first_run_ms": (first.vtcm_acquire_us, acquire, of_first),
        "power_up_time_ms": (run.power_up_us, power, of_run),
        "power_up_time_first_run_ms": (first.power_up_us, power, of_first),
    }
    section = {name: _time(profile, *parts) for name, parts in times.items()}
    total = section["total_inference_time_ms"]
    section["throughput_fps"] = missing(total.unavailable or "the total time is 0")
    if total.value:
        rate = 1e3 / total.value
        section["throughput_fps"] = Figure(rate, "one inference after the other: 1 / total_inference_time_ms")
    section["hardware_threads"] = _known(run.hvx_thread_count, f"{threads}, {of_run}", threads)
    if profile.is_emulated:
        section["hardware_threads"] = missing("the emulator has no hardware threads")
    return section


def resource_utilization(
    profile: QnnProfile, nodes: Sequence[NpuNode], schematic: Schematic | None, qhas: Qhas | None
) -> Section:
    section = {f"{unit.lower()}_utilization_percent": _utilization(unit, nodes, qhas) for unit in ("HVX", "HMX")}
    section["vtcm_peak_usage_kb"] = _vtcm_peak(schematic, qhas)
    section["ddr_bandwidth_mbps"] = _bandwidth(profile, nodes, qhas)
    section |= {column: _bytes(column, nodes, qhas) for column in BYTES}
    static = "schematic, static"
    section["spill_bytes"] = _counted((node.spill_bytes for node in nodes), f"{static}: bytes that @Spill writes")
    counted = _counted((node.op_count() for node in nodes), static)
    recorded_count = qhas.htp_op_count if qhas else None
    is_recorded = counted.value is None and recorded_count is not None
    section["htp_op_count"] = Figure(recorded_count, "QHAS: htp_nodes") if is_recorded else counted
    for unit in UNITS:
        counts = (node.op_count(unit) for node in nodes)
        section[f"{unit}_op_count"] = _counted(counts, f"{static}: operators with uses_{unit}")
    section["linting"] = missing(LINTING)
    return section


def as_document(by_title: dict[str, Section], **facts: object) -> dict[str, object]:
    """Return the sections as plain data: values, and sources and reasons beside them."""
    return {
        **{title: {name: figure.value for name, figure in section.items()} for title, section in by_title.items()},
        "source": {
            title: {name: figure.source for name, figure in section.items() if figure.value is not None}
            for title, section in by_title.items()
        },
        "unavailable": {
            title: {name: figure.unavailable for name, figure in section.items() if figure.value is None}
            for title, section in by_title.items()
        },
        **facts,
    }


def _total_us(run: QnnRun) -> int | None:
    return run.qnn_execute_us if run.netrun_us is None else run.netrun_us


def _less(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _known(value: float | None, source: str, row: str) -> Figure:
    return missing(f"the profile does not say it ({row})") if value is None else Figure(value, source)


def _time(profile: QnnProfile, value_us: int | None, row: str, of_run: str) -> Figure:
    if profile.is_emulated:
        return missing(EMULATED)
    return _known(None if value_us is None else value_us / 1e3, f"profile: {row}, {of_run}", row)


def _node_times(nodes: Sequence[NpuNode], execution: Figure) -> Figure:
    """Return the time that is divided over the nodes: all of it, or what is missing for that."""
    if execution.value is None:
        return execution
    if not nodes or None in (node.cycles_share for node in nodes):
        return missing("the profile does not have the cycles of all nodes; profiling level detailed does")
    rows = f"all of htp_execution_time_ms, by shares of {len(nodes)} nodes in the cycles of all hardware threads"
    return Figure(execution.value, f"npu_nodes: attributed_npu_time_us; {rows}")


def _utilization(unit: str, nodes: Sequence[NpuNode], qhas: Qhas | None) -> Figure:
    share = qhas.busy_share(unit) if qhas else None
    if qhas and share is not None:
        is_stated = share == qhas.stated_shares.get(unit)
        threads = f"cycles_used of all {unit} threads over their number times timeline_cycles"
        return Figure(100 * share, f"QHAS: {'as stated there' if is_stated else threads}")
    counted = [count for node in nodes if (count := node.op_count(unit.lower())) is not None]
    static = f"; {sum(counted):,} HTP operators use {unit}" if counted else ""
    return missing((NO_QHAS if qhas is None else f"QHAS has no {unit} thread") + static)


def _vtcm_peak(schematic: Schematic | None, qhas: Qhas | None) -> Figure:
    if schematic and schematic.vtcm_peak_bytes is not None:
        return Figure(schematic.vtcm_peak_bytes / KIB, "schematic, static: end of the highest VTCM block, in KiB")
    if qhas and qhas.vtcm_peak_bytes is not None:
        return Figure(qhas.vtcm_peak_bytes / KIB, "QHAS: peak_vtcm_alloc, in KiB")
    return missing(NO_SCHEMATIC)


def _bandwidth(profile: QnnProfile, nodes: Sequence[NpuNode], qhas: Qhas | None) -> Figure:
    """Return the DRAM traffic over the time of the device, in MB/s, which are bytes per µs."""
    moved = [_counted((node.moved_bytes(column) for node in nodes), "").value for column in BYTES[:2]]
    time_us = median_run(profile).accelerator_us
    if None not in moved and time_us and not profile.is_emulated:
        total = sum(value for value in moved if value is not None)
        return Figure(total / time_us, "schematic: DRAM bytes over the profile's Accelerator (execute) time, in MB/s")
    if qhas and qhas.execute_us and qhas.dram_read_bytes is not None and qhas.dram_write_bytes is not None:
        total = qhas.dram_read_bytes + qhas.dram_write_bytes
        return Figure(total / qhas.execute_us, "QHAS: DRAM bytes over graph_execute_us, in MB/s")
    if qhas and qhas.bandwidth_mbps is not None:
        return Figure(qhas.bandwidth_mbps, "QHAS: as stated there")
    return missing(EMULATED if profile.is_emulated else NO_SCHEMATIC)


def _bytes(column: str, nodes: Sequence[NpuNode], qhas: Qhas | None) -> Figure:
    figure = _counted((node.moved_bytes(column) for node in nodes), "schematic, static")
    recorded = getattr(qhas, column, None)
    if figure.value is None and recorded is not None:
        return Figure(recorded, "QHAS: of one inference")
    return figure


def _counted(values: Iterable[int | None], source: str) -> Figure:
    known = [*values]
    total = None if None in known or not known else sum(value for value in known if value is not None)
    return missing(NO_SCHEMATIC) if total is None else Figure(total, source)
