"""The recorders: against a folder that a test fills as the kernel would."""

import mmap
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from common.os_events import counters, tracefs
from common.os_events.counters import CounterRecorder, Counts, events_between, read_counts
from common.os_events.recorder import FALLBACK_NOTE, OsEventRecorder
from common.os_events.tracefs import PREFIX, REMEDY, TracefsRecorder, mask_text
from common.os_events.tracefs import tracefs as mounted

PREEMPTED = """\
 python-7 [001] d..2. 1.000000: sched_switch: prev_comm=python prev_pid={own} prev_prio=120 prev_state=R ==> \
next_comm=spin next_pid=50 next_prio=120
 spin-50 [001] d..2. 1.002000: sched_switch: prev_comm=spin prev_pid=50 prev_prio=120 prev_state=R ==> \
next_comm=python next_pid={own} next_prio=120
"""


class FakeKernel:
    """tracefs as a folder: an instance has its files once it is made, and a mark shows up in the trace."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.now_s = 100.0
        self.clock_ahead_s = 0.0
        self.thread_id = threading.get_native_id()
        self.answers_marks = True
        self.instance = None
        (root / "instances").mkdir()
        monkeypatch.setattr(tempfile, "mkdtemp", self.make)
        monkeypatch.setattr(Path, "rmdir", shutil.rmtree)  # the kernel's files go with their folder

    def make(self, prefix, dir):
        self.instance = Path(dir, f"{prefix}x")
        for event in tracefs.EVENTS:
            (self.instance / "events" / event).mkdir(parents=True)
        (self.instance / "trace_pipe").touch()
        return str(self.instance)

    def say(self, text):
        with (self.instance / "trace_pipe").open("a") as pipe:
            pipe.write(text)

    def clock(self):
        """Seconds; asked for the second time, just after a mark was written, it also lets the mark show up."""
        self.now_s += 1e-6
        marker = self.instance / "trace_marker"
        if self.answers_marks and marker.exists():
            time_s = self.now_s + self.clock_ahead_s
            self.say(f" python-{self.thread_id} [000] ..... {time_s:.6f}: tracing_mark_write: {marker.read_text()}\n")
            marker.unlink()
        return self.now_s

    def setting(self, name):
        return (self.instance / name).read_text()


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    return FakeKernel(tmp_path, monkeypatch)


def recorder(kernel, **settings):
    return TracefsRecorder(kernel.root, clock=kernel.clock, **settings)


def test_an_instance_of_its_own_is_set_up_and_removed(kernel):
    with recorder(kernel) as recording:
        assert recording.is_recording
        assert kernel.instance.name.startswith(f"{PREFIX}{os.getpid()}_")
        assert kernel.setting("trace_clock") == "mono"
        assert kernel.setting("tracing_cpumask") == mask_text(os.sched_getaffinity(0))
        assert [kernel.setting(f"events/{event}/enable") for event in tracefs.EVENTS] == ["1"] * 3
        assert recording.trace.own == {int(task.name) for task in Path("/proc/self/task").iterdir()}
        kernel.say(PREEMPTED.format(own=kernel.thread_id))
    (event,) = recording.events
    assert (event.other_process, event.is_main_thread) == ("spin", True)
    assert event.duration_us == pytest.approx(2000)
    assert (recording.notes, recording.trace.switch_count) == ([], 2)
    assert list((kernel.root / "instances").iterdir()) == []


def test_a_buffer_that_never_empties_is_not_read_for_ever(kernel):
    """Under strace each read of the buffer is an event that comes into it."""
    with recorder(kernel, parses_late=True) as recording, Path("/dev/zero").open("rb") as endless:
        os.dup2(endless.fileno(), recording._pipe)
        kernel.now_s += 2 * tracefs.DRAIN_PERIOD_S
        recording.drain_if_due()
        assert len(b"".join(recording._unparsed)) == tracefs.MOST_UNPARSED_BYTES
        recording._unparsed.clear()
        os.dup2(os.open(os.devnull, os.O_RDONLY), recording._pipe)


def test_it_is_removed_after_an_exception_too(kernel):
    with pytest.raises(RuntimeError, match="a run throws"), recorder(kernel) as recording:
        kernel.say(PREEMPTED.format(own=kernel.thread_id))
        raise RuntimeError("a run throws")
    assert len(recording.events) == 1
    assert list((kernel.root / "instances").iterdir()) == []


def test_pending_events_are_drained_when_a_drain_is_due(kernel):
    with recorder(kernel) as recording:
        kernel.say(PREEMPTED.format(own=kernel.thread_id))
        recording.drain_if_due()
        assert recording.events == []
        kernel.now_s += tracefs.DRAIN_PERIOD_S
        recording.drain_if_due()
        assert len(recording.events) == 1
        recording.drain_if_due()
    assert len(recording.events) == 1


def test_events_beside_timed_work_are_parsed_when_it_has_ended(kernel):
    with recorder(kernel, parses_late=True) as recording:
        kernel.say(PREEMPTED.format(own=kernel.thread_id))
        kernel.now_s += tracefs.DRAIN_PERIOD_S
        recording.drain_if_due()
        kernel.say(PREEMPTED.format(own=kernel.thread_id).replace("1.", "7."))
        assert recording.trace.switch_count == 0
    assert [event.time_s for event in recording.events] == [pytest.approx(1, abs=0.5), pytest.approx(7, abs=0.5)]
    assert recording.notes == []


def test_no_more_than_memory_holds_is_kept_unparsed(kernel, monkeypatch):
    monkeypatch.setattr(tracefs, "MOST_UNPARSED_BYTES", 10)
    with recorder(kernel, parses_late=True) as recording:
        kernel.say(PREEMPTED.format(own=kernel.thread_id))
        kernel.now_s += 3
        recording.drain_if_due()
        assert kernel.setting("tracing_on") == "0"
        with monkeypatch.context() as never:
            never.setattr(os, "read", lambda *_: pytest.fail("nothing is recorded any more"))
            kernel.now_s += 3
            recording.drain_if_due()
    assert len(recording.events) == 1
    assert recording.notes == ["os_events: incomplete: so many scheduler events came that none was kept after 3 s"]


def test_in_a_container_the_mark_tells_the_kernels_number(kernel):
    kernel.thread_id = 4_000_001
    with recorder(kernel) as recording:
        kernel.say(PREEMPTED.format(own=4_000_001))
    assert recording.trace.own == {4_000_001}
    assert recording.events[0].is_main_thread
    busy = threading.Event()
    thread = threading.Thread(target=busy.wait)
    thread.start()
    with recorder(kernel) as recording:
        assert "threads created before the recording" in recording.notes[0]
    busy.set()
    thread.join()


def test_a_clock_that_is_not_ours_is_refused(kernel):
    kernel.clock_ahead_s = 3.0
    with recorder(kernel) as recording:
        assert not recording.is_recording
    assert recording.notes == [f"tracefs: cannot be used (its clock is not the clock of this process); {REMEDY}"]
    assert list((kernel.root / "instances").iterdir()) == []


def test_marks_that_do_not_show_up_are_refused(kernel):
    kernel.answers_marks = False
    with recorder(kernel) as recording:
        assert not recording.is_recording
    assert "does not appear" in recording.notes[0]


def test_overruns_are_counted_and_said(kernel):
    with recorder(kernel) as recording:
        kernel.say("CPU:1 [LOST 4177 EVENTS]\n")
    assert recording.trace.lost_count == 4177
    assert recording.notes == ["os_events: incomplete: 4,177 scheduler events were overwritten before being read"]


def test_what_the_kernel_hides_is_said(kernel):
    with recorder(kernel) as recording:
        kernel.say(PREEMPTED.format(own=kernel.thread_id).partition("\n")[0] + "\n")
    assert recording.notes == ["os_events: incomplete: 1 intervals are left out because the kernel hid their end"]


def test_tracefs_that_vanishes_in_mid_run_leaves_what_was_read(kernel, monkeypatch):
    with recorder(kernel) as recording:
        kernel.say(PREEMPTED.format(own=kernel.thread_id))
        kernel.now_s += 1
        recording.drain_if_due()
        with monkeypatch.context() as gone:
            gone.setattr(os, "read", lambda *_: (_ for _ in ()).throw(OSError(19, "No such device")))
            kernel.now_s += 1
            recording.drain_if_due()
        recording.drain_if_due()
    assert len(recording.events) == 1
    assert recording.notes == ["os_events: incomplete: tracefs failed during the runs (No such device)"]


def test_an_instance_that_cannot_be_removed_is_named(kernel, monkeypatch):
    with recorder(kernel) as recording:
        monkeypatch.setattr(Path, "rmdir", lambda _: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    assert recording.notes == [
        f"tracefs: the trace instance {PREFIX}{os.getpid()}_x was not removed (Read-only file system)"
    ]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(kernel):
    dead = subprocess.Popen(["true"])
    dead.wait()
    names = [f"{PREFIX}{dead.pid}_a", f"{PREFIX}{os.getppid()}_b", "of_another_tool"]
    for name in names:
        (kernel.root / "instances" / name).mkdir()
    with recorder(kernel):
        pass
    assert sorted(path.name for path in (kernel.root / "instances").iterdir()) == sorted(names[1:])


def test_a_folder_that_is_no_tracefs_is_a_note(tmp_path):
    with TracefsRecorder(tmp_path) as recording:
        recording.drain_if_due()
    assert recording.events == []
    assert recording.notes == [f"tracefs: cannot be used (No such file or directory); {REMEDY}"]


def test_where_it_is_mounted(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "proc /proc proc rw 0 0\nnodev /a/ro tracefs ro,relatime 0 0\nnodev /a/b tracefs rw,relatime 0 0\n"
    )
    with mounted(mounts) as root:
        assert root == Path("/a/b")
    with pytest.raises(OSError, match="this system has no tracefs"), mounted(tmp_path / "absent"):
        pass


@pytest.mark.parametrize("errno", [1, 38])
def test_a_mount_that_is_refused_is_the_kernels_reason(errno, monkeypatch, tmp_path):
    (tmp_path / "mounts").write_text("")
    monkeypatch.setattr(tracefs, "MOUNTS", tmp_path / "mounts")

    class Refusing:
        def __init__(self, *_, **__):
            pass

        def syscall(self, *_):
            return -1

    monkeypatch.setattr(tracefs.ctypes, "CDLL", Refusing)
    monkeypatch.setattr(tracefs.ctypes, "get_errno", lambda: errno)
    with pytest.raises(OSError, match=re.escape(os.strerror(errno))), mounted(tmp_path / "mounts"):
        pass


@pytest.mark.parametrize(
    ("processors", "text"), [({0}, "00000001"), ({0, 1, 5}, "00000023"), ({33, 64, 2}, "00000001,00000002,00000004")]
)
def test_the_mask_of_processors(processors, text):
    assert mask_text(processors) == text


# --- the counters ---------------------------------------------------------------------------------------------------

ZERO = Counts(0, 0, 0, 0, 0.0, 1000)


class FakeCounters:
    def __init__(self, *readings):
        self.readings = iter(readings)
        self.now_s = 10.0

    def read(self):
        reading = next(self.readings)
        if isinstance(reading, Exception):
            raise reading
        return reading


def test_counts_are_differences_over_a_period():
    events = events_between(2.0, Counts(3, 5, 7, 11, 1.0, 1000), 2.5, Counts(5, 10, 14, 24, 1.02, 4000))
    assert [(event.event_kind, event.event_count) for event in events[:4]] == [
        ("voluntary_switch", 2),
        ("involuntary_switch", 5),
        ("minor_fault", 7),
        ("major_fault", 13),
    ]
    stolen, memory = events[4:]
    assert (stolen.event_kind, stolen.lost_us) == ("stolen", pytest.approx(20_000))
    assert (memory.event_kind, memory.resident_bytes) == ("resident_memory", 4000)
    assert {(event.time_s, event.duration_us) for event in events} == {(2.0, 500_000.0)}


def test_what_did_not_change_or_is_not_counted_here_has_no_row():
    assert events_between(0, ZERO, 1, ZERO) == []
    unknown = Counts(0, 0, None, None, None, 1000)
    assert events_between(0, unknown, 1, Counts(0, 0, None, None, None, 1000)) == []


def test_readings_are_taken_when_due_and_at_both_ends():
    fake = FakeCounters(ZERO, Counts(2, 0, 0, 0, 0.0, 1000), Counts(5, 0, 0, 0, 0.0, 1000))
    with CounterRecorder(fake.read, clock=lambda: fake.now_s) as recording:
        recording.drain_if_due()
        fake.now_s += 0.03
        recording.drain_if_due()
        recording.drain_if_due()
        fake.now_s += 0.005
    assert [(event.time_s, event.event_count) for event in recording.events] == [(10.0, 2), (10.03, 3)]
    assert recording.notes == []


@pytest.mark.parametrize("error", [psutil.AccessDenied(7), OSError("gone")])
def test_counters_that_fail_in_mid_run_leave_what_was_read(error):
    fake = FakeCounters(ZERO, Counts(2, 0, 0, 0, 0.0, 1000), error)
    with CounterRecorder(fake.read, clock=lambda: fake.now_s) as recording:
        for _ in range(3):
            fake.now_s += 0.03
            recording.drain_if_due()
    assert [event.event_count for event in recording.events] == [2]
    assert len(recording.notes) == 1
    assert "cannot be read" in recording.notes[0]


def test_the_process_is_counted_whole():
    before = read_counts()
    pages = mmap.mmap(-1, 8 << 20)  # 2048 pages of 4 KiB, or 4 huge ones
    pages.write(b"x" * len(pages))
    worker = threading.Thread(target=lambda: [time.sleep(1e-6) for _ in range(31)])
    worker.start()
    worker.join()
    after = read_counts()
    assert after.voluntary_switches - before.voluntary_switches >= 31  # psutil's own figure is of the main thread
    assert after.minor_faults - before.minor_faults >= 4
    assert after.resident_bytes > before.resident_bytes
    pages.close()


def test_without_getrusage_psutil_counts(monkeypatch):
    monkeypatch.setattr(counters, "resource", None)
    counts = read_counts()
    assert counts.voluntary_switches + counts.involuntary_switches > 0
    assert (counts.minor_faults, counts.major_faults) == (None, None)  # not on Linux
    assert counts.resident_bytes > 1 << 20


@pytest.mark.parametrize(("run_s", "readings"), [(0.03, 30), (0.012, 3), (0.001, 0)])
def test_short_runs_are_seldom_disturbed(run_s, readings):
    fake, taken = FakeCounters(), []
    with CounterRecorder(lambda: taken.append(fake.now_s) or ZERO, clock=lambda: fake.now_s) as recording:
        for _ in range(30):
            fake.now_s += run_s
            recording.drain_if_due()
    assert len(taken) == readings + 2  # 0.36 s hold three periods of 0.1 s, of nine runs each


def test_counters_stand_in_where_tracefs_cannot_be_used(tmp_path):
    fake = FakeCounters(ZERO, Counts(0, 3, 0, 0, 0.0, 1000))
    with OsEventRecorder(TracefsRecorder(tmp_path), CounterRecorder(fake.read)) as recording:
        recording.drain_if_due()
    assert [event.event_kind for event in recording.events] == ["involuntary_switch"]
    assert recording.notes == [f"tracefs: cannot be used (No such file or directory); {REMEDY}", FALLBACK_NOTE]


def test_both_record_where_both_can(kernel):
    fake = FakeCounters(ZERO, Counts(0, 3, 0, 0, 0.0, 1000))
    counters = CounterRecorder(fake.read, clock=lambda: fake.now_s)
    with OsEventRecorder(recorder(kernel), counters) as recording:
        kernel.say(PREEMPTED.format(own=kernel.thread_id))
        recording.drain_if_due()
    assert [event.event_kind for event in recording.events] == ["preempted", "involuntary_switch"]  # 1 s and 10 s
    assert recording.notes == []
