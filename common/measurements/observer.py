"""Observation of the measured runs: sampled sensors, recorded OS events and counted hardware events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from common.latency.run import RunSeries
from common.messages.errors import UnusableValueError
from common.os_events.disturbance import disturbance_lines, disturbances
from common.os_events.events import event_rows
from common.os_events.recorder import OsEventRecorder
from common.sensors.discover import available_sensors
from common.sensors.hardware_counters import HardwareCounters
from common.sensors.other_work import OtherWork
from common.sensors.powercap import DEFAULT_ROOT
from common.sensors.sample_rows import counter_figures, host_rows, power_rows
from common.sensors.sampler import IDLE, RUN, Sampler, sample_idle
from common.sensors.sensor import Sample
from common.table_rows import HardwareCountersDocument, LoadDisturbancesRow, RunDisturbancesRow

LEAST_RATE_HZ, MOST_RATE_HZ = 0.1, 1000.0
OF_RUNS = ("is_profiled", "run_index", "hit_node", "hit_us")  # columns that a call of a load test lacks


class Observer:
    """Observes the runs that are made while its ``with`` block runs.

    The block must be inside a block of :meth:`recording`. The caller drains ``events`` between the runs.

    Args:
        powercap_root: folder of the RAPL counters; None for that of the system.
        rate_hz: readings per second.

    Raises:
        UnusableValueError: ``rate_hz`` is out of range.
    """

    def __init__(self, powercap_root: Path | None, rate_hz: float) -> None:
        if not LEAST_RATE_HZ <= rate_hz <= MOST_RATE_HZ:
            problem = f"{rate_hz:g} is not from {LEAST_RATE_HZ:g} to {MOST_RATE_HZ:g}"
            raise UnusableValueError("sensor_rate_hz", problem)
        self._sensors, self._missing = available_sensors(powercap_root or DEFAULT_ROOT)
        self._rate_hz = rate_hz
        self._samples: dict[str, list[Sample]] = {IDLE: [], RUN: []}
        self._samplers = [Sampler(self._sensors, self._samples[RUN], rate_hz)]
        self.events = OsEventRecorder()
        self._counters = HardwareCounters()
        self.other_work = OtherWork()
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def recording(self, idle_s: float) -> Iterator[None]:
        """Sample the idle host for ``idle_s``, then record OS events while the block runs.

        Enter it before the runtime creates its threads, so that they are known as threads of this process. Without a
        power sensor the idle host is not sampled.
        """
        self._samplers.insert(0, sample_idle(self._sensors, self._samples[IDLE], idle_s, self._rate_hz))
        with self.events:
            yield

    def __enter__(self) -> Observer:
        """Start sampling and counting; discard the OS events recorded so far."""
        self.events.restart()
        for instrument in (self.other_work, self._samplers[-1], self._counters):
            self._stack.enter_context(instrument)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def notes(self) -> list[str]:
        """Notes on everything that is missing or failed, each with a remedy."""
        sampled = (note for sampler in self._samplers for note in sampler.notes)
        return [*self._missing, *sampled, *self._counters.result.notes, *self.events.notes]

    def tables(self, origin_s: float) -> Iterator[tuple[str, Iterable[Mapping[str, object]], list[str]]]:
        """Yield each table: its name, its rows, and what the rows lack.

        Their time zero is ``origin_s`` on the clock of ``time.perf_counter``.
        """
        holes = [hole for sampler in self._samplers for hole in sampler.incomplete]
        yield "power_samples", power_rows(self._samples, origin_s), holes
        yield "host_samples", host_rows(self._samples, origin_s), holes
        yield "os_events", event_rows(self.events.events, origin_s), self.events.incomplete

    def counters(self, run_count: int) -> HardwareCountersDocument:
        """Return the fields of hardware_counters, which cover ``run_count`` runs."""
        return counter_figures(self._counters.result, run_count)

    def disturbances(self, runs: Iterable[RunSeries]) -> tuple[list[RunDisturbancesRow], list[str]]:
        """Return the rows of run_disturbances, one per slow run, and the worst of them in words.

        The runs are those of both series; slow profiled runs have node spans.
        """
        disturbed = disturbances(runs, self.events.events)
        return disturbed, disturbance_lines(disturbed)


def slow_calls(series: Iterable[RunSeries], events: OsEventRecorder) -> tuple[list[LoadDisturbancesRow], list[str]]:
    """Return slow calls of batches with what disturbed them, by the number of the batch, and the worst in words."""
    disturbed = disturbances(series, events.events)
    rows = [{"load_batch_index": call["run_index"], **_of_call(call)} for call in disturbed]
    notes = disturbance_lines(disturbed, noun="call") + (events.notes if disturbed else [])
    return cast("list[LoadDisturbancesRow]", rows), notes


def _of_call(disturbance: RunDisturbancesRow) -> dict[str, Any]:
    return {name: value for name, value in disturbance.items() if name not in OF_RUNS}
