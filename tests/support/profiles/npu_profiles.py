"""Profiles of NPUs: the recorded ones, and texts in the same formats with figures of one's own."""

import json
from pathlib import Path

from tests.support.paths import ROOT

DATA = ROOT / "tests" / "npu" / "data"
HEADER = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier"
DEVICE_US = {
    "QNN (execute) time": 12_500,
    "RPC (execute) time": 12_100,
    "QNN accelerator (execute) time": 11_700,
    "Accelerator (execute) time": 11_200,
    "Accelerator (execute excluding wait) time": 10_900,
    "Time for initial VTCM acquire": 199,
    "Time for HVX + HMX power on and acquire": 37,
}


def root_row(event, value, unit="US", message="BACKEND", source="BACKEND"):
    return f"0,{message},{value},{unit},{source},ROOT,{event}"


def node_row(name, op_id, cycles):
    separator = " " if name in ("Input", "Output") else ":"
    return f"0,NODE,{cycles},CYCLES,BACKEND,SUB-EVENT,{name}{separator}OpId_{op_id} (cycles)"


def device_run(nodes, times_us=None, threads=4):
    """Rows of one run as a device writes them: nodes as (name, op id, cycles), and times over those of DEVICE_US."""
    times = {**DEVICE_US, **(times_us or {})}
    total = sum(cycles for *_, cycles in nodes if isinstance(cycles, int))
    rows = [root_row("Number of HVX threads used", threads, "COUNT")]
    rows += [root_row(event, value) for event, value in times.items() if event != "QNN (execute) time"]
    rows.append(root_row("Accelerator (execute) time (cycles)", total, "CYCLES"))
    rows += [node_row(*node) for node in nodes]
    return [*rows, root_row("QNN (execute) time", times["QNN (execute) time"], message="EXECUTE")]


def write_csv(path: Path, *blocks, header=HEADER):
    path.write_text("\n".join([header, *(row for block in blocks for row in block)]) + "\n", encoding="utf-8")
    return path


def qhas_content(**overall):
    """A QHAS summary in prime figures: one matrix and three vector threads."""
    resources = [{"type": "HMX", "tid": 256, "cycles_used": 709}]
    resources += [
        {"type": "HVX", "tid": 512 + index, "cycles_used": used} for index, used in enumerate((101, 211, 307))
    ]
    summary = {
        "htp_resources": {"data": resources},
        "time_us": 1_361,
        "graph_execute_us": 1_129,
        "timeline_cycles": 1_009,
        "total_dram_read": 26_634_241,
        "total_dram_write": 4_099,
        "peak_vtcm_alloc": 6_619_136,
    }
    return {"data": {"htp_overall_summary": {"data": [{**summary, **overall}]}}}


def write_qhas(path: Path, **overall):
    path.write_text(json.dumps(qhas_content(**overall)), encoding="utf-8")
    return path
