"""Processor and memory of the host and of this process, read by psutil and, where the system has it, getrusage.

On Linux, /proc/self/status and therefore psutil count the context switches of the main thread only. getrusage counts
those of all threads, and their processor time in µs where /proc counts hundredths of a second. A quantity that a
container or a virtual machine hides is left out with a note; it is never zero.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import psutil

from common.messages.errors import PipelineError
from common.sensors.sensor import SLOW_PERIOD_S, Clock, CounterSensor, Found, GaugeSensor, Sample, Sensor, together

Reading = TypeVar("Reading")
_SLOWER_PERIOD_S = 1.0  # frequency reads several files per logical processor, memory takes about 100 µs
_SWITCH_LIMIT_PER_S = 1e9
_HIDDEN = "a container or a virtual machine hides it"


class HostUtilization:
    """Busy share of all logical processors: all time but idle time and waiting for input and output."""

    name = "psutil"
    domain = "host"
    quantities = ("cpu_utilization_share",)
    period_s = SLOW_PERIOD_S

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._previous: Any = None

    def restart(self) -> None:
        self._previous = None

    def sample(self) -> Sequence[Sample]:
        """Return the share since the last reading at which time had passed."""
        times, previous = ask(psutil.cpu_times), self._previous
        now_s = self._clock()
        if previous is None:
            self._previous = times
            return ()
        busy_s, total_s = passed_s(previous, times)
        if not total_s:
            return ()
        self._previous = times
        return (Sample(now_s, self.name, self.domain, self.quantities[0], busy_s / total_s),)


def busy_processors(seconds: float) -> float:
    """Return the mean count of busy processors while this process waits; errors are those of :func:`ask`."""
    return ask(partial(psutil.cpu_percent, interval=seconds)) / 100 * (os.cpu_count() or 1)


def passed_s(before: Any, after: Any) -> tuple[float, float]:
    """Return busy and total time between two readings; a step back by a tick, as idle times make it, counts as 0."""
    passed = {name: max(0.0, getattr(after, name) - getattr(before, name)) for name in after._fields}
    # Linux includes guest time in user time
    total_s = sum(passed.values()) - passed.get("guest", 0.0) - passed.get("guest_nice", 0.0)
    return max(0.0, total_s - passed["idle"] - passed.get("iowait", 0.0)), max(0.0, total_s)


def ask(read: Callable[[], Reading]) -> Reading:
    """Call a function of psutil; PipelineError: /proc or the operating system does not give the value."""
    try:
        return read()
    except (OSError, NotImplementedError, psutil.Error) as error:
        raise PipelineError("psutil", f"cannot be read ({error})") from error


def cpu_sensors(clock: Clock) -> Found:
    """Return the sensors of the domains ``host`` and ``process``, and a note for each quantity that is hidden."""
    process = psutil.Process()
    sensors: list[Sensor] = [
        _gauge("host", "memory_available_bytes", lambda: ask(psutil.virtual_memory).available, _SLOWER_PERIOD_S, clock),
        _gauge("process", "memory_resident_bytes", lambda: ask(process.memory_info).rss, SLOW_PERIOD_S, clock),
        *process_sensors(clock),
    ]
    found: list[Found] = [(sensors, [])]
    for discover in (_utilization, _host_switches, _frequency):
        try:
            found.append(discover(clock))
        except PipelineError as error:
            found.append(([], [str(error)]))
    return together(found)


def process_state(clock: Clock) -> Sensor:
    """Return the sensor of what this process holds: memory, open files (handles on Windows) and threads."""
    process = psutil.Process()

    def read() -> tuple[float, ...]:
        handles = getattr(process, "num_handles" if psutil.WINDOWS else "num_fds")
        return tuple(float(ask(figure)) for figure in (lambda: process.memory_info().rss, handles, process.num_threads))

    quantities = ("memory_resident_bytes", "handle_count", "thread_count")
    return GaugeSensor("psutil", "process", quantities, read, clock=clock, period_s=SLOW_PERIOD_S)


def _utilization(clock: Clock) -> Found:
    if not sum(ask(psutil.cpu_times)):
        return [], [f"psutil: no processor times of the host; {_HIDDEN}"]
    return [HostUtilization(clock)], []


def _host_switches(clock: Clock) -> Found:
    def count() -> int:
        return int(ask(psutil.cpu_stats).ctx_switches)

    if not count():
        return [], [f"psutil: no context switches of the host; {_HIDDEN}"]
    return [_switches("psutil", "host", "context_switches_per_s", count, clock)], []


def _frequency(clock: Clock) -> Found:
    """Return a sensor only where the kernel scales the frequency and so knows its range; elsewhere it is nominal."""
    frequency = ask(psutil.cpu_freq)
    if frequency is None or not frequency.max or not frequency.current:
        return [], [f"psutil: no processor frequency ({_HIDDEN}); the nominal one is no measurement"]

    def read_mhz() -> float:
        if (now := ask(psutil.cpu_freq)) is None:
            raise PipelineError("psutil host", "no longer gives the frequency")
        return float(now.current)

    return [_gauge("host", "cpu_frequency_mhz", read_mhz, _SLOWER_PERIOD_S, clock)], []


def _gauge(domain: str, quantity: str, read: Callable[[], float], period_s: float, clock: Clock) -> Sensor:
    return GaugeSensor("psutil", domain, (quantity,), lambda: (float(read()),), clock=clock, period_s=period_s)


def process_sensors(clock: Clock) -> list[Sensor]:
    """Return the sensors of processor time and context switches of all threads of this process."""
    processors = os.cpu_count() or 1
    name, voluntary, involuntary = _switch_counters()
    return [
        CounterSensor(
            "process_time",
            "process",
            time.process_time_ns,
            clock=clock,
            quantity="cpu_utilization_share",
            unit=1e-9 / processors,
            limit=math.inf,  # never reset; exceeds 1 only by the jitter between two clocks
            period_s=SLOW_PERIOD_S,
        ),
        _switches(name, "process", "voluntary_context_switches_per_s", voluntary, clock),
        _switches(name, "process", "involuntary_context_switches_per_s", involuntary, clock),
    ]


def _switches(name: str, domain: str, quantity: str, read: Callable[[], int], clock: Clock) -> Sensor:
    return CounterSensor(
        name, domain, read, clock=clock, quantity=quantity, unit=1.0, limit=_SWITCH_LIMIT_PER_S, period_s=SLOW_PERIOD_S
    )


def _switch_counters() -> tuple[str, Callable[[], int], Callable[[], int]]:
    """Return the name of the source, and the readers of voluntary and of involuntary switches of this process."""
    try:
        import resource
    except ImportError:  # Windows
        count = psutil.Process().num_ctx_switches
        return "psutil", lambda: ask(count).voluntary, lambda: ask(count).involuntary
    read = partial(resource.getrusage, resource.RUSAGE_SELF)
    return "getrusage", lambda: read().ru_nvcsw, lambda: read().ru_nivcsw
