"""The kernel itself: what the recorder says is what the kernel recorded and counted, whatever else the host does.

A competitor that spins and the runs are put on one processor, so that each must take it from the other. No test
expects that this competitor, rather than another process of a loaded host, takes the processor. Every wait is for an
event, with a bound on how many runs or attempts are made for it.
"""

import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from common.latency.run import NodeSpan, Run
from common.os_events import tracefs
from common.os_events.disturbance import LEAST_EXPLAINED_SHARE, disturbances
from common.os_events.recorder import FALLBACK_NOTE, OsEventRecorder
from common.os_events.tracefs import PREFIX, TracefsRecorder
from tests.support.paths import ROOT
from tests.support.profiles.run_series import series_of

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


class Switch(NamedTuple):
    """A line of the kernel's trace: on a processor, one thread gave way to another."""

    time_us: float
    leaving_id: int
    could_run: bool
    coming_id: int


def switches(text, processor):
    """The switches on a processor, read from the kernel's text by a pattern of this test's own."""
    line = re.compile(
        rf"\[0*{processor}\] .* (\d+\.\d+): sched_switch: .*prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+)"
    )
    for match in line.finditer(text):
        yield Switch(1e6 * float(match[1]), int(match[2]), match[3].startswith("R"), int(match[4]))


class OffInterval(NamedTuple):
    """A thread could run and did not; ``ran_us`` says how long each other thread ran meanwhile."""

    start_us: float
    end_us: float
    ran_us: dict


def off_intervals(thread_id, recorded):
    """The intervals from each preemption of a thread to its return, told from the switches of its processor alone."""
    left, ran_us = None, {}
    for before, switch in pairwise(recorded):
        if switch.leaving_id == thread_id:
            left = switch.time_us if switch.could_run else None
            ran_us = {}
        elif left is not None:
            ran_us[switch.leaving_id] = ran_us.get(switch.leaving_id, 0.0) + switch.time_us - before.time_us
        if switch.coming_id == thread_id and left is not None:
            yield OffInterval(left, switch.time_us, ran_us)
            left = None


def overlap_us(start_us, end_us, interval):
    return max(0.0, min(end_us, interval.end_us) - max(start_us, interval.start_us))


@pytest.mark.slow
def test_who_ran_instead_and_the_node_that_it_hit_are_what_the_kernel_recorded(
    tmp_path, one_processor, competitor, monkeypatch
):
    """On any host, idle or loaded: the trace itself says which thread ran, and the times of the nodes which was hit.

    A competitor on the same processor makes sure that runs are disturbed: the scheduler must divide the processor.
    """
    laps, pieces, read = [], [], TracefsRecorder._read
    monkeypatch.setattr(TracefsRecorder, "_read", lambda recorder: pieces.append(read(recorder)) or pieces[-1])
    with OsEventRecorder() as recording:
        running, values = session(tmp_path)

        def lap():
            switches_before, start_s = own_counts()[0], time.perf_counter()
            running.run(None, values)
            laps.append((start_s, time.perf_counter()))
            recording.drain_if_due()
            return own_counts()[0] > switches_before

        for _ in range(200):
            lap()
        competitor()
        disturbed_count = 0
        for _ in range(20_000):
            disturbed_count += lap()
            if disturbed_count == 7:
                break
    assert FALLBACK_NOTE not in recording.notes
    assert disturbed_count == 7
    runs = list(aligned(running.end_profiling(), laps))
    rows = disturbances(series_of(runs), recording.events)
    (main_id,) = {event.thread_id for event in recording.events if event.is_main_thread}
    lost = list(off_intervals(main_id, list(switches(b"".join(pieces).decode(), one_processor))))
    slept = [
        OffInterval(1e6 * event.time_s, 1e6 * event.time_s + event.duration_us, {})
        for event in recording.events
        if event.event_kind == "waited"
    ]
    judged = 0
    for row in rows:
        run = runs[row["run_index"]]
        inside = [each for each in (*lost, *slept) if overlap_us(1e6 * run.start_s, 1e6 * run.end_s, each)]
        if len(inside) != 1 or not inside[0].ran_us:
            continue  # of several intervals, the recorder weighs each by the thread that ran the longest in it
        (interval,) = inside
        judged += 1
        longest_us = max(interval.ran_us.values())
        assert interval.ran_us[row["other_process_id"]] == pytest.approx(longest_us, abs=2)  # two may run equally long
        assert (row["processor_index"], row["is_main_thread"]) == (one_processor, True)
        length_us = overlap_us(1e6 * run.start_s, 1e6 * run.end_s, interval)
        assert row["other_us"] == pytest.approx(length_us, abs=2)  # times in the trace are whole µs
        assert row["other_us"] <= row["lost_us"] <= row["latency_us"]
        assert (row["disturbance_cause"] == "other_process") == (row["explained_share"] >= LEAST_EXPLAINED_SHARE)
        hits_us = {span.executed_node: overlap_us(span.start_us, span.end_us, interval) for span in run.node_spans}
        assert row["hit_us"] == (None if not row["hit_node"] else pytest.approx(max(hits_us.values()), abs=2))
        if row["hit_node"]:
            assert hits_us[row["hit_node"]] == pytest.approx(max(hits_us.values()), abs=2)
    assert judged  # a run takes 0.1 ms and a turn of another thread some ms, so few runs lose the processor twice


def settled_counts():
    """A time in seconds and the kernel's books at that time: nobody took the processor while they were read."""
    while True:
        before, now_s, after = own_counts(), time.perf_counter(), own_counts()
        if before == after:
            return now_s, after


def test_what_was_lost_is_what_the_kernel_counted(one_processor, competitor):
    with TracefsRecorder() as recording:
        competitor()
        own = threading.get_native_id()
        start_s, (switches_before, waited_before_us) = settled_counts()
        for _ in range(5000):
            hashlib.pbkdf2_hmac("sha256", b"p", b"s", 1000)
            if own_counts()[0] - switches_before >= 11:
                break
        end_s, (switches, waited_us) = settled_counts()
    mine = [event for event in recording.events if event.thread_id == own and start_s <= event.time_s <= end_s]
    counted = switches - switches_before
    assert counted >= 11
    # What the kernel hides is counted apart.
    assert 0 <= counted - sum(event.event_kind == "preempted" for event in mine) <= recording.trace.unseen_count
    # The kernel books a wait a while before it traces the switch, longer if the hypervisor takes the processor then.
    seen_us, all_us = sum(event.lost_us for event in mine), waited_us - waited_before_us
    assert seen_us <= 1.02 * all_us + 20 * counted
    if not recording.trace.unseen_count:  # a hidden wait may be of any length
        assert seen_us == pytest.approx(all_us, rel=0.02, abs=20 * counted)
    assert recording.trace.lost_count == 0


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


@pytest.mark.slow
def test_a_thread_made_later_is_known_as_ours(one_processor):
    with TracefsRecorder() as recording:
        found = preempted_by_own(recording)
    assert found
    assert {event.thread_id for event in found} | {event.other_process_id for event in found} <= recording.trace.own


IN_A_CONTAINER = f"""
import hashlib, json, os, threading
from common.os_events.tracefs import TracefsRecorder
{inspect.getsource(preempted_by_own)}
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
with TracefsRecorder() as recording:
    found = preempted_by_own(recording)
has_main = any(event.is_main_thread for event in found)
print(json.dumps([os.getpid(), recording.notes, has_main, sorted(recording.trace.own)]))
"""


@pytest.mark.slow
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
    assert recording.trace.lost_count > 0
    assert "were overwritten before being read" in recording.notes[0]
