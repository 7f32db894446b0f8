"""The kernel itself: a competitor is named with the node that it hit, and what was lost is what the kernel counted.

A competitor that spins and the runs are put on one processor, so that each must take it from the other. Every wait is
for an event, with a bound on how many runs or attempts are made for it.
"""

import hashlib
import inspect
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from common.latency.run import NodeSpan, Run
from common.os_events import tracefs
from common.os_events.disturbance import disturbances
from common.os_events.recorder import OsEventRecorder
from common.os_events.tracefs import PREFIX, TracefsRecorder
from tests.support.paths import ROOT

SPIN = "print('ready', flush=True)\nwhile True: pass"


def why_not():
    with TracefsRecorder() as recording:
        return None if recording.is_recording else recording.notes[0]


REASON = why_not() if sys.platform == "linux" else "tracefs is Linux'"
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


@pytest.fixture
def one_processor():
    """This thread, and those that it makes, on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield max(before)
    os.sched_setaffinity(0, before)


@pytest.fixture
def competitor():
    """Starts processes that spin; each is spinning when its start returns."""
    started = []

    def start():
        process = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def session(folder, width=101, depth=3):
    """A chain of matrix products on one thread, with a trace: some 0.1 ms, where a competitor takes 4 ms."""
    shape = [width, width]
    nodes = [helper.make_node("MatMul", [f"t{i}", "w"], [f"t{i + 1}"], f"product_{i}") for i in range(depth)]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("t0", "w")]
    result = [helper.make_tensor_value_info(f"t{depth}", TensorProto.FLOAT, shape)]
    model = helper.make_model(
        helper.make_graph(nodes, "chain", given, result), opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "trace")
    values = {name: np.full(shape, 0.01, np.float32) for name in ("t0", "w")}
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]), values


def aligned(trace_file, laps):
    """Runs with the spans of their nodes: the middle of a run is the middle of its event in the trace."""
    events = json.loads(Path(trace_file).read_text())
    runs = [event for event in events if event["name"] == "model_run"]
    nodes = [event for event in events if event["name"].endswith("_kernel_time")]
    for index, ((start_s, end_s), run) in enumerate(zip(laps, runs, strict=True)):
        ahead_us = 1e6 * (start_s + end_s) / 2 - run["ts"] - run["dur"] / 2
        inside = [node for node in nodes if run["ts"] <= node["ts"] <= run["ts"] + run["dur"]]
        spans = [
            NodeSpan(
                node["name"].removesuffix("_kernel_time"), node["ts"] + ahead_us, node["ts"] + node["dur"] + ahead_us
            )
            for node in inside
        ]
        yield Run(True, index, start_s, 1e6 * (end_s - start_s), spans)


def own_counts():
    """Involuntary switches of this thread, and how long it waited for a processor in µs, by the kernel's own books."""
    task = Path("/proc/self/task", str(threading.get_native_id()))
    status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
    return int(status["nonvoluntary_ctxt_switches"]), int((task / "schedstat").read_text().split()[1]) / 1e3


def test_a_competitor_is_named_with_the_node_that_it_hit(tmp_path, one_processor, competitor):
    """Other processes of the host may be faster to take the processor, so there are several competitors in turn."""
    laps, competitors = [], set()
    with OsEventRecorder() as recording:
        running, values = session(tmp_path)

        def lap():
            start_s = time.perf_counter()
            running.run(None, values)
            laps.append((start_s, time.perf_counter()))

        for _ in range(5):
            for _ in range(200):
                lap()
            process, switches_before = competitor(), own_counts()[0]
            competitors.add(process.pid)
            for _ in range(4000):
                lap()
                if own_counts()[0] - switches_before >= 3:  # the processor was taken from this thread
                    break
            process.kill()
            process.wait()
    assert recording.name == "tracefs"
    rows = disturbances(aligned(running.end_profiling(), laps), recording.events)
    hit = [row for row in rows if row.other_process_id in competitors and row.hit_node is not None]
    assert hit
    worst = max(hit, key=lambda row: row.other_us)
    assert worst.disturbance_cause == "other_process"
    assert worst.other_process.startswith("python")
    assert worst.processor_index == one_processor
    assert worst.is_main_thread
    assert worst.hit_node.startswith("product_")
    assert 0 < worst.hit_us <= worst.lost_us <= worst.latency_us
    assert worst.explained_share > 0.5


def test_what_was_lost_is_what_the_kernel_counted(one_processor, competitor):
    with TracefsRecorder() as recording:
        competitor()
        own = threading.get_native_id()
        start_s, (switches_before, waited_before_us) = time.perf_counter(), own_counts()
        for _ in range(5000):
            hashlib.pbkdf2_hmac("sha256", b"p", b"s", 1000)
            if own_counts()[0] - switches_before >= 11:
                break
        switches, waited_us = (
            after - before for after, before in zip(own_counts(), (switches_before, waited_before_us), strict=True)
        )
        end_s = time.perf_counter()
    mine = [event for event in recording.events if event.thread_id == own and start_s <= event.time_s <= end_s]
    preempted = [event for event in mine if event.event_kind == "preempted"]
    # One more of ours may fall between a reading and its time, and what the kernel hides is counted apart.
    assert switches >= 11
    assert -1 <= switches - len(preempted) <= recording.unseen_count + 1
    longest_us = max(event.lost_us for event in mine)
    assert sum(event.lost_us for event in mine) == pytest.approx(
        waited_us, rel=0.02, abs=longest_us * (1 + recording.unseen_count)
    )
    assert recording.lost_count == 0


def preempted_by_own(recording):
    """Two threads of ours on one processor, until one has taken it from the other."""
    done = threading.Event()

    def spin():
        while not done.is_set():
            hashlib.pbkdf2_hmac("sha256", b"p", b"s", 1000)  # lets go of Python's own lock

    thread = threading.Thread(target=spin)
    thread.start()
    for _ in range(5000):
        hashlib.pbkdf2_hmac("sha256", b"p", b"s", 1000)
        recording.drain_if_due()
        if any(event.is_own_thread for event in recording.events):
            break
    done.set()
    thread.join()
    return [event for event in recording.events if event.is_own_thread]


def test_a_thread_made_later_is_known_as_ours(one_processor):
    with TracefsRecorder() as recording:
        found = preempted_by_own(recording)
    assert found
    assert {event.thread_id for event in found} | {
        event.other_process_id for event in found
    } <= recording.own_thread_ids


IN_A_CONTAINER = f"""
import hashlib, json, os, threading
from common.os_events.tracefs import TracefsRecorder
{inspect.getsource(preempted_by_own)}
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
with TracefsRecorder() as recording:
    found = preempted_by_own(recording)
has_main = any(event.is_main_thread for event in found)
print(json.dumps([os.getpid(), recording.notes, has_main, sorted(recording.own_thread_ids)]))
"""


def test_in_a_process_namespace_threads_are_known_by_the_kernels_numbers():
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", IN_A_CONTAINER]
    result = subprocess.run(inside, capture_output=True, text=True, cwd=ROOT, check=False)
    if "Operation not permitted" in result.stderr:
        pytest.skip("no process namespace may be made here")
    assert result.returncode == 0, result.stderr
    process_id, notes, has_main, own = json.loads(result.stdout)
    assert (process_id, has_main) == (1, True)
    assert [note for note in notes if "the kernel hid" not in note] == []
    assert len(own) == 2  # the main thread and the one that it made
    assert min(own) > 2  # inside they are 1 and 2


def instances(root):
    return {path.name for path in (root / "instances").glob(f"{PREFIX}{os.getpid()}_*")}


def mounts():
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if " tracefs " in line]


@pytest.mark.parametrize("is_mounted", [True, False])
def test_nothing_stays_behind(is_mounted, monkeypatch, tmp_path):
    if not is_mounted:
        (tmp_path / "mounts").write_text("")
        monkeypatch.setattr(tracefs.tracefs.__wrapped__, "__defaults__", (tmp_path / "mounts",))
    before, descriptors = mounts(), len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(RuntimeError, match="a run throws"), TracefsRecorder() as recording:
        assert recording.is_recording
        with tracefs.tracefs() as root:
            assert is_mounted or str(root).startswith("/proc/self/fd/")
            assert len(instances(root)) == 1
        raise RuntimeError("a run throws")
    with tracefs.tracefs() as root:
        assert instances(root) == set()
    assert mounts() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_what_a_killed_process_leaves_goes_with_the_next():
    script = (
        "import os\nfrom common.os_events.tracefs import TracefsRecorder\nTracefsRecorder().__enter__()\nos._exit(0)"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT) as process:
        process.wait()
    with tracefs.tracefs() as root:
        assert list((root / "instances").glob(f"{PREFIX}{process.pid}_*"))
        with TracefsRecorder() as recording:
            assert recording.is_recording
        assert not list((root / "instances").glob(f"{PREFIX}{process.pid}_*"))


def test_a_buffer_that_is_too_small_is_said():
    with TracefsRecorder(buffer_kib=4) as recording:
        for _ in range(2000):
            time.sleep(1e-6)  # two switches each
    assert recording.lost_count > 0
    assert "were overwritten before being read" in recording.notes[0]
