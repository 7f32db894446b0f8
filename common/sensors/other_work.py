"""How many processors other work on the host took while the runs were timed: other processes, and the hypervisor."""

from __future__ import annotations

import time
from typing import Any

import psutil

from common.messages.errors import PipelineError
from common.messages.host_doubts import BUSY
from common.sensors.cpu import ask, passed_s

LEAST_WORK_S = 0.2  # the system counts in steps of 10 ms per processor
LEAST_PROCESSORS = 0.25  # what an idle system takes for itself
BUSY_SHARE = 0.1  # of all processors


class OtherWork:
    """Processors that other work keeps busy on average during a ``with`` block, and how many the host has.

    Both are None until the block has ended, where the system does not report its times, and for work of less than
    ``LEAST_WORK_S``.
    """

    def __init__(self) -> None:
        self.processors: float | None = None
        self.processor_count: int | None = None
        self._before: tuple[Any, float] | None = None

    def __enter__(self) -> OtherWork:
        self._before = _reading()
        return self

    def __exit__(self, *_: object) -> None:
        after = _reading()
        if self._before and after:
            busy_s, total_s = passed_s(self._before[0], after[0])
            other_s = busy_s - (after[1] - self._before[1])
            if other_s >= LEAST_WORK_S:
                self.processor_count = psutil.cpu_count() or 1
                self.processors = self.processor_count * other_s / total_s

    def notes(self, threads: int) -> list[str]:
        """Return a note if the work is a tenth of the host, or with our threads needs more processors than it has."""
        took, has = self.processors, self.processor_count
        if took is None or has is None or took < LEAST_PROCESSORS:
            return []
        if took < BUSY_SHARE * has and took + threads <= has:
            return []
        remedy = "stop it and measure again before you trust any time"
        return [f"{BUSY}: other work took {took:.1f} of its {has} processors during the runs; {remedy}"]


def _reading() -> tuple[Any, float] | None:
    """Return the times of all processors, and the processor time of this process in s."""
    try:
        return ask(psutil.cpu_times), time.process_time()
    except PipelineError:
        return None
