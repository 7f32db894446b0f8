"""The sampler: one thread that reads every sensor at absolute deadlines and puts the samples into a sink.

Sleeping for one period after each reading drifts by the duration of the reading: ``sleep(0.1)`` is not 10 Hz. Here
deadline k is start + k periods, however long the earlier readings took. Missed deadlines are skipped and counted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from common.messages.errors import PipelineError
from common.sensors.quantities import POWER
from common.sensors.sensor import Clock, Sample, Sensor

DEFAULT_RATE_HZ = 10.0  # RAPL counters are updated every millisecond, NVML every 20 to 100 ms
IDLE, RUN = "idle", "run"
# A busy host does not keep the thread from running this long; a suspended or stopped process, or a clock step, does.
_GAP_S = 2.0
_GAP_PERIODS = 10
_MOST_FAULTS = 100  # jumps of the clock that get a line of their own: a sampler may run for days


class SampleSink(Protocol):
    """Takes samples one reading at a time, from the sampler's thread and from that of the block. A list is a sink."""

    def extend(self, samples: Iterable[Sample], /) -> None:
        """Add samples. Must return quickly: the next reading waits for it."""


class Sampler:
    """Reads sensors into a sink while a ``with`` block runs; ``notes`` and ``incomplete`` say what went wrong.

    A sampler serves one block, ``phase``: ``idle`` or ``run``. A later sampler may use the same sensors and restarts
    their counters. Without sensors no thread is started. A sensor with a longer period than that of ``rate_hz``
    is read less often. ``wait`` waits for a number of seconds and returns whether to stop; by default until the block
    ends.
    """

    def __init__(
        self,
        sensors: Sequence[Sensor],
        sink: SampleSink,
        rate_hz: float = DEFAULT_RATE_HZ,
        *,
        phase: str = RUN,
        clock: Clock = time.perf_counter,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self.sensors = tuple(sensors)
        self.phase = phase
        self.missed_count = 0
        self.thread_time_s = 0.0
        self._sink = sink
        self._period_s = 1 / rate_hz
        self._clock = clock
        self._running = threading.Lock()  # held while the block runs; waiting for a lock costs half of an event
        self._wait = wait or (lambda seconds: self._running.acquire(timeout=seconds))
        self._thread = threading.Thread(target=self._run, name="sensor-sampler", daemon=True)
        self._fast = [sensor for sensor in self.sensors if sensor.period_s <= self._period_s]
        self._slow = [sensor for sensor in self.sensors if sensor.period_s > self._period_s]
        self._due_s = [-math.inf] * len(self._slow)
        self._earliest_s = -math.inf
        # By sensor: how many, and the last message alone, because a sampler may run for days.
        self._failures: dict[tuple[str, str], tuple[int, str]] = {}
        self._faults: list[str] = []
        self._more_faults = 0
        self._start_s = self._last_s = 0.0

    def __enter__(self) -> Sampler:
        """Take the first reading, so that counters start with the block, and start the thread."""
        if self.sensors:
            for sensor in self.sensors:
                sensor.restart()
            self._start_s = self._last_s = self._clock()
            self._read(self.sensors)
            self._running.acquire()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread and take the last reading, so that the samples reach to the end of the block."""
        if self.sensors:
            self._running.release()
            self._thread.join()
            self._check_clock(self._clock())
            self._read(self.sensors)

    @property
    def incomplete(self) -> list[str]:
        """Holes in the samples: one line for each sensor and domain that failed, and for each jump of the clock."""
        failed = [
            f"{name} {domain}: {count} readings failed ({last}); the {self.phase} samples have a hole"
            for (name, domain), (count, last) in list(self._failures.items())
        ]
        more = [f"sensors: {self._more_faults} more jumps of the clock"] if self._more_faults else []
        return [*failed, *self._faults, *more]

    @property
    def notes(self) -> list[str]:
        """Everything that went wrong while sampling; the samples taken stay valid."""
        missed = f"sensors: {self.missed_count} sample times were missed; the host was busy"
        return [*self.incomplete, *([missed] if self.missed_count else [])]

    def _run(self) -> None:
        done = 0
        while True:
            upcoming = next_deadline(self._start_s, self._period_s, self._clock(), done)
            if self._wait(max(0.0, self._start_s + upcoming * self._period_s - self._clock())):
                break
            self.missed_count += upcoming - done - 1
            done = upcoming
            now_s = self._clock()
            if self._check_clock(now_s):
                self._start_s = now_s - done * self._period_s
            self._read(self._due(now_s))
        self.thread_time_s = time.thread_time()

    def _check_clock(self, now_s: float) -> bool:
        """Record a jump of the clock. Return True for a jump backwards: the next deadline may then be hours away."""
        step_s, self._last_s = now_s - self._last_s, now_s
        if step_s < 0:
            self._record_fault(f"sensors: the clock went back by {-step_s:.1f} s; {self.phase} samples overlap")
            self._due_s, self._earliest_s = [-math.inf] * len(self._slow), -math.inf
        elif step_s > max(_GAP_S, _GAP_PERIODS * self._period_s):
            cause = "the process was suspended or stopped, or the clock was set forward"
            self._record_fault(f"sensors: nothing was read for {step_s:.1f} s; {cause}")
        return step_s < 0

    def _record_fault(self, line: str) -> None:
        if len(self._faults) < _MOST_FAULTS:
            self._faults.append(line)
        else:
            self._more_faults += 1

    def _due(self, now_s: float) -> list[Sensor]:
        """Return the sensors whose own period has passed, or will have passed within half a sampling period."""
        if now_s < self._earliest_s:
            return self._fast
        due = list(self._fast)
        for index, sensor in enumerate(self._slow):
            if now_s >= self._due_s[index]:
                self._due_s[index] = now_s + sensor.period_s - self._period_s / 2
                due.append(sensor)
        self._earliest_s = min(self._due_s, default=math.inf)
        return due

    def _read(self, sensors: Sequence[Sensor]) -> None:
        for sensor in sensors:
            try:
                self._sink.extend(sensor.sample())
            except PipelineError as error:
                count, _ = self._failures.get((sensor.name, sensor.domain), (0, ""))
                self._failures[sensor.name, sensor.domain] = count + 1, str(error)


def sample_idle(
    sensors: Sequence[Sensor], sink: SampleSink, seconds: float, rate_hz: float = DEFAULT_RATE_HZ
) -> Sampler:
    """Sample the host while this process does nothing: the power that it draws without the model.

    The samples include whatever else runs on the host. Without a power sensor the function returns at once.
    """
    sampler = Sampler(sensors, sink, rate_hz, phase=IDLE)
    if any(POWER in sensor.quantities for sensor in sensors):
        with sampler:
            time.sleep(seconds)
    return sampler


def next_deadline(start_s: float, period_s: float, now_s: float, last_done: int) -> int:
    """Return the index of the first deadline that is neither past nor done; deadline k is at start + k periods."""
    return max(last_done + 1, math.ceil((now_s - start_s) / period_s))
