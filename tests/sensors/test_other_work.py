"""Other work on the host: told from this process's own, and said where it matters."""

from types import SimpleNamespace

import pytest

from common.sensors import other_work
from common.sensors.other_work import OtherWork


def watched(monkeypatch, *readings, processors=4):
    """A block between two readings: user and idle time of all processors, and this process's own time, in s."""
    times = iter(SimpleNamespace(_fields=("user", "idle"), user=user, idle=idle) for user, idle, _ in readings)
    own = iter(reading[2] for reading in readings)
    monkeypatch.setattr(other_work.psutil, "cpu_times", lambda: next(times))
    monkeypatch.setattr(other_work.psutil, "cpu_count", lambda: processors)
    monkeypatch.setattr(other_work.time, "process_time", lambda: next(own))
    with OtherWork() as work:
        pass
    return work


def test_what_other_processes_took_of_four_processors(monkeypatch):
    """In 5 s, four processors have 20 s: 13 busy, of which 3 ours."""
    work = watched(monkeypatch, (100, 1000, 50), (113, 1007, 53))
    assert (work.processors, work.processor_count) == (pytest.approx(4 * 10 / 20), 4)
    (note,) = work.notes(threads=1)
    assert note.startswith("the host was busy: other work took 2.0 of its 4 processors during the runs; stop it")


@pytest.mark.parametrize(
    ("other_s", "threads", "processors", "is_noted"),
    [
        (3, 1, 4, True),  # 0.6 of 4 processors
        (1, 1, 4, False),  # 0.2: any system does as much for itself
        (3, 60, 64, False),  # 0.6 of 64, and 60 threads have room beside it
        (3, 64, 64, True),
    ],
)
def test_work_is_noted_where_it_is_large_or_in_our_way(monkeypatch, other_s, threads, processors, is_noted):
    """In 5 s; this process works for 7 s."""
    after = (7 + other_s, 5 * processors - 7 - other_s, 7)
    work = watched(monkeypatch, (0, 0, 0), after, processors=processors)
    assert bool(work.notes(threads)) is is_noted


def test_a_tick_of_the_system_is_no_work(monkeypatch):
    work = watched(monkeypatch, (0, 0, 0), (0.19, 0.01, 0))
    assert (work.processors, work.notes(1)) == (None, [])


def test_a_system_without_processor_times_has_no_note(monkeypatch):
    monkeypatch.setattr(other_work.psutil, "cpu_times", lambda: (_ for _ in ()).throw(NotImplementedError("none")))
    with OtherWork() as work:
        pass
    assert (work.processors, work.notes(1)) == (None, [])
