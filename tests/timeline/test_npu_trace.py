"""Runs of an NPU for a viewer: parts within their run, nodes by their share of the cycles, nothing of an emulator."""

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.timeline.npu_trace import npu_process


def run(index, *, is_emulated=False, **times_us):
    unknown = dict.fromkeys(column.name for column in ARTIFACTS["npu_runs"].columns)
    known = {"npu_run_index": index, "session_index": 0, "is_emulated": is_emulated, "accelerator_cycles": 7}
    return {**unknown, **known, **times_us}


def node(name, share, **more):
    return {"npu_node": name, "npu_cycles_share": share, "source_nodes": [name], **more}


RUNS = [
    run(0, qnn_execute_us=500, accelerator_us=307),
    run(1, qnn_execute_us=103, rpc_execute_us=89, accelerator_us=70),
    run(2, qnn_execute_us=101, rpc_execute_us=None, accelerator_us=70),
]
NODES = [node("conv", 0.75, dram_read_bytes=17), node("relu", 0.0), node("add", 0.25, dram_read_bytes=None)]


def of_track(process, track):
    return [(part.name, part.start_us, part.duration_us) for part in process.slices if part.track == track]


def test_runs_follow_one_another_with_their_parts():
    assert of_track(npu_process({"npu_runs": RUNS, "npu_nodes": NODES}), "runs") == [
        ("run 0: qnn_execute", 0, 500),
        ("run 0: accelerator", 0, 307),
        ("run 1: qnn_execute", 500, 103),
        ("run 1: rpc_execute", 500, 89),
        ("run 1: accelerator", 500, 70),
        ("run 2: qnn_execute", 603, 101),
        ("run 2: accelerator", 603, 70),
    ]


def test_nodes_share_the_time_on_the_device_of_the_median_run():
    process = npu_process({"npu_runs": RUNS, "npu_nodes": NODES})
    assert of_track(process, "nodes of the median run") == [("conv", 500, 52.5), ("add", 552.5, 17.5)]
    conv = next(part for part in process.slices if part.name == "conv")
    assert conv.facts["time"] == "allocated by the share of cycles"
    assert conv.facts["dram_read_bytes"] == 17


@pytest.mark.parametrize("runs", [[], [run(0, is_emulated=True, qnn_execute_us=5)], [run(0, qnn_execute_us=None)]])
def test_nothing_is_shown_without_times_of_a_device(runs):
    assert npu_process({"npu_runs": runs, "npu_nodes": NODES}) is None


def test_nodes_are_left_out_where_no_time_on_the_device_is_known():
    process = npu_process({"npu_runs": [run(0, qnn_execute_us=5)], "npu_nodes": NODES})
    assert [part.track for part in process.slices] == ["runs"]
