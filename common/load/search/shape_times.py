"""What batches take in each way to divide the processors among sessions."""

from __future__ import annotations

from collections.abc import Sequence

from common.latency.statistics import Samples
from common.load.search.batch_times import measure_times
from common.load.search.halving import Shape
from common.load.search.search_runs import SearchHarness, Unending


class ShapeTimes:
    """ServiceTimes of full batches by shape and size, and the power that they took, as they are measured."""

    def __init__(self, harness: SearchHarness) -> None:
        self._harness = harness
        self.times: dict[Shape, dict[int, Samples]] = {}
        self.powers_w: dict[tuple[Shape, int], float | None] = {}

    def measure(self, shapes: Sequence[Shape], sizes: Sequence[int], budget_s: float, *, is_cut: bool = False) -> None:
        """Measure batches of some sizes in some shapes; if it is cut, no shape begins after the budget's end."""
        harness, end_s = self._harness, self._harness.now_s() + budget_s
        for index, shape in enumerate(shapes):
            left_s = end_s - harness.now_s()
            if index and is_cut and left_s <= 0:
                break
            each_s = max(0.0, left_s) / ((len(shapes) - index) * len(sizes))
            for size in sizes:
                load = Unending(harness, shape)
                found = measure_times(load, shape[0], [size], each_s)
                self.times.setdefault(shape, {}).update(found)
                self.powers_w[shape, size] = load.power_w

    def full_hz(self, shape: Shape, size: int) -> float:
        """Return the requests per second that full batches in all sessions answer."""
        return shape[0] * size / float(self.times[shape][size].mean())
