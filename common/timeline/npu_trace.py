"""Runs and nodes of an NPU's profile for a viewer, on a clock of their own: no profile says when a run began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low
from typing import cast

from common.table_rows import NpuNodesRow, NpuRunsRow, Tables
from common.timeline.chrome_trace import Process, Slice, known_facts

TITLE = "NPU (clock of its own, runs one after the other)"
ON_DEVICE = ("accelerator_busy_us", "accelerator_us", "qnn_accelerator_us")  # what holds the nodes, the closest first
TIMES = ("netrun_us", "qnn_execute_us", "rpc_execute_us", *reversed(ON_DEVICE))  # each within the one before
NODE_FACTS = (
    *("source_nodes", "fused_into", "npu_cycles", "npu_cycles_share", "htp_op_count", "hvx_op_count", "hmx_op_count"),
    *("dma_op_count", "dram_read_bytes", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes", "spill_bytes"),
)


def npu_process(tables: Tables) -> Process | None:
    """Return the runs of a device, and the nodes of the median one.

    There is none without npu_runs, and none for an emulator, whose times mean nothing.

    The profile has only the cycles of a node, added up over the threads of the processor. So its slice is an allocation
    of the run's time by its share of the cycles, in the order of the graph, and says so.
    """
    runs = [row for row in tables.get("npu_runs", ()) if not row["is_emulated"]]
    timed = [(row, cast("dict[str, float]", known)) for row in runs if (known := known_facts(row, TIMES))]
    if not timed:
        return None
    middle_us = median_low(max(times.values()) for _, times in timed)
    middle = next(row for row, times in timed if max(times.values()) == middle_us)
    slices: list[Slice] = []
    start_us = 0.0
    for row, times in timed:
        slices += _run_slices(row, times, start_us)
        slices += _node_slices(times, tables["npu_nodes"], start_us) if row is middle else ()
        start_us += max(times.values())
    return Process(TITLE, slices)


def _run_slices(row: NpuRunsRow, times: Mapping[str, float], start_us: float) -> Iterator[Slice]:
    """Yield the run and its parts; where in the run a part begins is not known, so all begin with it."""
    facts = {
        "npu_run_index": row["npu_run_index"],
        "session_index": row["session_index"],
        "accelerator_cycles": row["accelerator_cycles"],
    }
    for name, time_us in times.items():
        title = f"run {row['npu_run_index']}: {name.removesuffix('_us')}"
        yield Slice(title, "runs", start_us, time_us, facts)


def _node_slices(times: Mapping[str, float], nodes: Sequence[NpuNodesRow], start_us: float) -> Iterator[Slice]:
    device_us = next((times[name] for name in ON_DEVICE if name in times), None)
    if device_us is None:
        return
    for node in nodes:
        if share := node["npu_cycles_share"]:
            facts = known_facts(node, NODE_FACTS) | {"time": "allocated by the share of cycles"}
            yield Slice(node["npu_node"], "nodes of the median run", start_us, share * device_us, facts)
            start_us += share * device_us
