"""What goes on around the runs: sensors sampled, the scheduler's events recorded, hardware events counted, as one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from common.errors import CommandLineError
from common.latency.run import Run
from common.os_events.disturbance import disturbances
from common.os_events.disturbance_text import disturbance_lines
from common.os_events.event_rows import event_rows
from common.os_events.recorder import OsEventRecorder
from common.sensors.discover import available_sensors
from common.sensors.hardware_counters import HardwareCounters
from common.sensors.powercap import DEFAULT_ROOT
from common.sensors.sample_rows import counter_figures, host_rows, power_rows
from common.sensors.sampler import IDLE, RUN, Sampler, sample_idle
from common.sensors.sensor import Sample

LEAST_RATE_HZ, MOST_RATE_HZ = 0.1, 1000.0
Row = Mapping[str, Any]
Progress = Callable[[float, float], None]


class Observer:
    """Observes while a ``with`` block runs, within one of :meth:`recording`.

    Args:
        powercap_root: folder of the RAPL counters; None is the system's.
        rate_hz: readings per second of each sensor.

    Raises:
        CommandLineError: a rate that no sensor is read at.
    """

    def __init__(self, powercap_root: Path | None, rate_hz: float) -> None:
        """Find the sensors; start nothing."""
        if not LEAST_RATE_HZ <= rate_hz <= MOST_RATE_HZ:
            problem = f"is not from {LEAST_RATE_HZ:g} to {MOST_RATE_HZ:g}"
            raise CommandLineError(f"--sensor-rate-hz {rate_hz:g}", problem)
        self._sensors, self._missing = available_sensors(powercap_root or DEFAULT_ROOT)
        self._rate_hz = rate_hz
        self._samples: dict[str, list[Sample]] = {IDLE: [], RUN: []}
        self._samplers = [Sampler(self._sensors, self._samples[RUN], rate_hz)]
        self._events = OsEventRecorder()
        self._counters = HardwareCounters()
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def recording(self, idle_s: float) -> Iterator[None]:
        """Sample the idle host for so long, then record the scheduler: from before the runtime makes its threads.

        Without a sensor of power no time is taken for the idle host.
        """
        self._samplers.insert(0, sample_idle(self._sensors, self._samples[IDLE], idle_s, self._rate_hz))
        with self._events:
            yield

    def __enter__(self) -> Observer:
        """Start."""
        self._events.restart()
        for observed in (self._samplers[-1], self._counters):
            self._stack.enter_context(observed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self._stack.close()

    def after(self, progress: Progress) -> Progress:
        """The same progress, and then what has gathered is read: both belong where nothing is being timed."""

        def between_runs(done: float, total: float) -> None:
            progress(done, total)
            self._events.between_runs()

        return between_runs

    @property
    def notes(self) -> list[str]:
        """What is missing or went wrong, each with its remedy."""
        sampled = (note for sampler in self._samplers for note in sampler.notes)
        return [*self._missing, *sampled, *self._counters.result.notes, *self._events.notes]

    def tables(self, origin_s: float) -> Iterator[tuple[str, Iterable[Row], list[str]]]:
        """Name, rows and holes of each table; times count from ``origin_s`` on the clock of ``time.perf_counter``."""
        holes = [hole for sampler in self._samplers for hole in sampler.incomplete]
        yield "power_samples", power_rows(self._samples, origin_s), holes
        yield "host_samples", host_rows(self._samples, origin_s), holes
        yield "os_events", event_rows(self._events.events, origin_s), self._events.incomplete

    def counters(self, run_count: int) -> dict[str, Any]:
        """The fields of hardware_counters, after so many runs."""
        return counter_figures(self._counters.result, run_count)

    def disturbances(self, runs: Iterable[Run]) -> tuple[list[Row], list[str]]:
        """Return the rows of run_disturbances, one for each slow run, and the worst of them in words.

        Args:
            runs: all runs after the warm-up; the slow profiled ones with their node spans.
        """
        found = disturbances(runs, self._events.events)
        return [asdict(one) for one in found], disturbance_lines(found)
