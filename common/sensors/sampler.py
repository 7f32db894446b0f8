"""The sampler: one thread that reads every sensor at absolute deadlines.

Sleeping a period after each reading drifts by what the reading takes: ``sleep(0.1)`` is not 10 Hz. Here the k-th
deadline is start + k periods, whatever the earlier readings took; deadlines that were missed are skipped and counted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from common.errors import PipelineError
from common.sensors.quantities import POWER
from common.sensors.sensor import Clock, Sample, Sensor

DEFAULT_RATE_HZ = 10.0  # RAPL is brought up to date every ms and NVML every 20 to 100 ms
IDLE, RUN = "idle", "run"
# A thread that is not let run for so long leaves a hole that no busy host explains: suspended, stopped, a clock set on.
_GAP_S = 2.0
_GAP_PERIODS = 10


class Sampler:
    """Reads sensors while a ``with`` block runs; ``samples``, ``notes`` and ``incomplete`` hold what came of it.

    A sampler is for one block; the same sensors may be given to a later one, which starts their counters anew.

    Args:
        sensors: what to read; with none, nothing is started.
        rate_hz: readings per second; a sensor with a period of its own is read less often.
        phase: what the block is: ``idle`` or ``run``.
        clock: gives seconds.
        wait: waits so many seconds and says whether to stop; by default until the block ends.
    """

    def __init__(
        self,
        sensors: Sequence[Sensor],
        rate_hz: float = DEFAULT_RATE_HZ,
        *,
        phase: str = RUN,
        clock: Clock = time.perf_counter,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """Start nothing yet."""
        self.sensors = tuple(sensors)
        self.phase = phase
        self.samples: list[Sample] = []
        self.missed_count = 0
        self.thread_time_s = 0.0
        self._period_s = 1 / rate_hz
        self._clock = clock
        self._running = threading.Lock()  # held while the block runs; waiting for it costs half of waiting for an event
        self._wait = wait or self._wait_for_end
        self._thread = threading.Thread(target=self._run, name="sensor-sampler", daemon=True)
        self._fast = [sensor for sensor in self.sensors if sensor.period_s <= self._period_s]
        self._slow = [sensor for sensor in self.sensors if sensor.period_s > self._period_s]
        self._due_s = [-math.inf] * len(self._slow)
        self._earliest_s = -math.inf
        self._failures: dict[tuple[str, str], list[str]] = {}
        self._faults: list[str] = []
        self._start_s = self._last_s = 0.0

    def __enter__(self) -> Sampler:
        """Take the first reading, so that the counters start with the block, and start the thread."""
        if self.sensors:
            for sensor in self.sensors:
                sensor.restart()
            self._start_s = self._last_s = self._clock()
            self._read(self.sensors)
            self._running.acquire()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop, and take the last reading, so that the end of the block is in the samples."""
        if self.sensors:
            self._running.release()
            self._thread.join()
            self._look_at_the_clock(self._clock())
            self._read(self.sensors)

    @property
    def incomplete(self) -> list[str]:
        """Why what was measured has holes: a line for each domain of a sensor, and for each jump of the clock."""
        return [
            *(
                f"{name} {domain}: {len(errors)} readings failed ({errors[-1]}); the {self.phase} samples have a hole"
                for (name, domain), errors in self._failures.items()
            ),
            *self._faults,
        ]

    @property
    def notes(self) -> list[str]:
        """What went wrong while sampling; what was read stays."""
        missed = f"sensors: {self.missed_count} sample times were missed; the host was busy"
        return [*self.incomplete, *([missed] if self.missed_count else [])]

    def _wait_for_end(self, seconds: float) -> bool:
        return self._running.acquire(timeout=seconds)

    def _run(self) -> None:
        done = 0
        while True:
            upcoming = next_deadline(self._start_s, self._period_s, self._clock(), done)
            if self._wait(max(0.0, self._start_s + upcoming * self._period_s - self._clock())):
                break
            self.missed_count += upcoming - done - 1
            done = upcoming
            now_s = self._clock()
            if self._look_at_the_clock(now_s):
                self._start_s = now_s - done * self._period_s
            self._read(self._due(now_s))
        self.thread_time_s = time.thread_time()

    def _look_at_the_clock(self, now_s: float) -> bool:
        """Record a jump; True for one backwards, after which the next deadline may be hours away."""
        step_s, self._last_s = now_s - self._last_s, now_s
        if step_s < 0:
            self._faults.append(f"sensors: the clock went back by {-step_s:.1f} s; {self.phase} samples overlap")
            self._due_s, self._earliest_s = [-math.inf] * len(self._slow), -math.inf
        elif step_s > max(_GAP_S, _GAP_PERIODS * self._period_s):
            self._faults.append(f"sensors: nothing was read for {step_s:.1f} s; suspended, stopped, or a clock set on")
        return step_s < 0

    def _due(self, now_s: float) -> list[Sensor]:
        """Sensors whose own period has passed; one that is due within half a deadline is read now."""
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
                self.samples.extend(sensor.sample())
            except PipelineError as error:
                self._failures.setdefault((sensor.name, sensor.domain), []).append(str(error))


def sample_idle(sensors: Sequence[Sensor], seconds: float, rate_hz: float = DEFAULT_RATE_HZ) -> Sampler:
    """Read sensors for so long while this process does nothing: what the host draws without the model.

    Whatever else runs on the host is in it. Without power sensors nothing is waited for.
    """
    sampler = Sampler(sensors, rate_hz, phase=IDLE)
    if any(POWER in sensor.quantities for sensor in sensors):
        with sampler:
            time.sleep(seconds)
    return sampler


def next_deadline(start_s: float, period_s: float, now_s: float, done: int) -> int:
    """Index of the first deadline that is neither past nor done; deadline k is at start + k periods."""
    return max(done + 1, math.ceil((now_s - start_s) / period_s))
