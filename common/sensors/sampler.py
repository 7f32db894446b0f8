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
from common.sensors.sensor import Clock, PowerSample, Sensor

DEFAULT_RATE_HZ = 10.0  # RAPL is brought up to date every ms and NVML every 20 to 100 ms


class Sampler:
    """Reads sensors while a ``with`` block runs; ``samples`` and ``notes`` hold what came of it.

    Args:
        sensors: what to read; with none, nothing is started.
        rate_hz: readings per second.
        clock: gives seconds.
        wait: waits so many seconds and says whether to stop; by default until the block ends.
    """

    def __init__(
        self,
        sensors: Sequence[Sensor],
        rate_hz: float = DEFAULT_RATE_HZ,
        *,
        clock: Clock = time.perf_counter,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """Start nothing yet."""
        self.sensors = tuple(sensors)
        self.samples: list[PowerSample] = []
        self.missed_count = 0
        self.reading_count = 0
        self._period_s = 1 / rate_hz
        self._clock = clock
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait
        self._thread = threading.Thread(target=self._run, name="power-sampler", daemon=True)
        self._failures: dict[tuple[str, str], list[str]] = {}

    def __enter__(self) -> Sampler:
        """Take the first reading, so that the counters start with the block, and start the thread."""
        if self.sensors:
            self._start_s = self._clock()
            self._read_all()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop, and take the last reading, so that the end of the block is in the samples."""
        if self.sensors:
            self._stop.set()
            self._thread.join()
            self._read_all()

    @property
    def notes(self) -> list[str]:
        """What went wrong while sampling; what was read stays."""
        lines = [
            f"{name} {domain}: {len(errors)} of {self.reading_count} readings failed ({errors[-1]}); "
            "their time is in the next sample, or missing at the end"
            for (name, domain), errors in self._failures.items()
        ]
        if self.missed_count:
            lines.append(f"power: {self.missed_count} sample times were missed; the host was busy")
        return lines

    def _run(self) -> None:
        done = 0
        while True:
            upcoming = next_deadline(self._start_s, self._period_s, self._clock(), done)
            if self._wait(max(0.0, self._start_s + upcoming * self._period_s - self._clock())):
                return
            self.missed_count += upcoming - done - 1
            done = upcoming
            self._read_all()

    def _read_all(self) -> None:
        self.reading_count += 1
        for sensor in self.sensors:
            try:
                sample = sensor.sample()
            except PipelineError as error:
                self._failures.setdefault((sensor.name, sensor.domain), []).append(str(error))
                continue
            if sample is not None:
                self.samples.append(sample)


def next_deadline(start_s: float, period_s: float, now_s: float, done: int) -> int:
    """Index of the first deadline that is neither past nor done; deadline k is at start + k periods."""
    return max(done + 1, math.ceil((now_s - start_s) / period_s))
