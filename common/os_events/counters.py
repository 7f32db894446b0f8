"""Counts that every system provides: context switches, page faults, memory, and time stolen by a hypervisor.

A count says that something happened, but neither when within the period nor who caused it. Counts replace the
scheduler's events where these cannot be read. Otherwise they add what no scheduler event shows: page faults, and time
in which a virtual machine did not run at all ("steal" in /proc/stat, in steps of 10 ms).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import psutil

from common.os_events.events import INCOMPLETE, Clock, EventKind, EventLog, OsEvent

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

# A reading takes 0.02 to 0.1 ms and leaves colder caches to the next run. For a long run that is negligible, and of
# short runs too few are affected to move the 99th percentile. Ten minutes of either fit into the log.
LONG_RUN_S = 0.02
READ_PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of this process since its start, and ``stolen_s`` of all processors; None where a system has none."""

    voluntary_switches: int
    involuntary_switches: int
    minor_faults: int | None
    major_faults: int | None
    stolen_s: float | None
    resident_bytes: int


def read_counts() -> Counts:
    """Read all counters.

    ``getrusage`` comes first because it counts all threads. On Linux, psutil counts the switches of the main thread
    only; it gives page faults only on Windows, both kinds in one count.
    """
    process = psutil.Process()
    memory = process.memory_info()
    stolen_s = getattr(psutil.cpu_times(), "steal", None)
    if resource is not None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        switches = (usage.ru_nvcsw, usage.ru_nivcsw)
        return Counts(*switches, usage.ru_minflt, usage.ru_majflt, stolen_s, memory.rss)
    switched = process.num_ctx_switches()
    faults = getattr(memory, "num_page_faults", None)
    return Counts(switched.voluntary, switched.involuntary, faults, None, stolen_s, memory.rss)


class CounterRecorder:
    """Records the counters after every long run, and every ``READ_PERIOD_S`` between short runs."""

    def __init__(self, read: Callable[[], Counts] = read_counts, *, clock: Clock = time.perf_counter) -> None:
        self._read = read
        self._clock = clock
        self._log = EventLog()
        self._problems: list[str] = []
        self._previous: tuple[float, Counts] | None = None
        self._called_s = 0.0

    @property
    def events(self) -> list[OsEvent]:
        """Counts that are not zero, by time."""
        return self._log.sorted()

    @property
    def notes(self) -> list[str]:
        """Everything that failed; counts read before stay valid."""
        dropped = self._log.dropped_count
        return [*self._problems, *([f"{INCOMPLETE}{dropped} counts were dropped"] if dropped else [])]

    def __enter__(self) -> CounterRecorder:
        self._called_s = self._clock()
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._take()

    @property
    def is_recording(self) -> bool:
        return not self._problems

    def restart(self) -> None:
        self._take()
        self._log = EventLog()

    def drain_if_due(self) -> None:
        now_s, before_s = self._clock(), self._called_s
        self._called_s = now_s
        was_long = now_s - before_s >= LONG_RUN_S
        if was_long or self._previous is None or now_s - self._previous[0] >= READ_PERIOD_S:
            self._take()

    def _take(self) -> None:
        if self._problems:
            return
        try:
            reading = (self._clock(), self._read())
        except (psutil.Error, OSError) as error:
            self._problems.append(f"{INCOMPLETE}the counters of the process cannot be read ({error})")
            return
        if self._previous is not None:
            self._log.extend(events_between(*self._previous, *reading))
        self._previous = reading


def events_between(before_s: float, before: Counts, after_s: float, after: Counts) -> list[OsEvent]:
    """Return the events of one period; counts of zero and unchanged memory are left out."""
    duration_us = 1e6 * (after_s - before_s)
    kinds: dict[EventKind, tuple[int | None, int | None]] = {
        "voluntary_switch": (before.voluntary_switches, after.voluntary_switches),
        "involuntary_switch": (before.involuntary_switches, after.involuntary_switches),
        "minor_fault": (before.minor_faults, after.minor_faults),
        "major_fault": (before.major_faults, after.major_faults),
    }
    events = [
        OsEvent(kind, before_s, duration_us, event_count=new - old)
        for kind, (old, new) in kinds.items()
        if old is not None and new is not None and new > old
    ]
    if before.stolen_s is not None and after.stolen_s is not None and after.stolen_s > before.stolen_s:
        stolen_us = 1e6 * (after.stolen_s - before.stolen_s)
        events.append(OsEvent("stolen", before_s, duration_us, lost_us=stolen_us))
    if after.resident_bytes != before.resident_bytes:
        events.append(OsEvent("resident_memory", before_s, duration_us, resident_bytes=after.resident_bytes))
    return events
