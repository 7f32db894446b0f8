"""What batches take in each way to divide the processors among sessions."""

from __future__ import annotations

from collections.abc import Sequence

from common.latency.statistics import Samples
from common.load.search.batch_times import measure_times
from common.load.search.halving import Shape
from common.load.search.search_runs import Rig, Unending


class ShapeTimes:
    """Times of full batches by shape and size, and the power that they took, as they are measured."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.times: dict[Shape, dict[int, Samples]] = {}
        self.powers_w: dict[tuple[Shape, int], float | None] = {}

    def measure(self, shapes: Sequence[Shape], sizes: Sequence[int], budget_s: float, *, is_cut: bool = False) -> None:
        """Measure batches of some sizes in some shapes; if it is cut, no shape begins after the budget's end."""
        rig, end_s = self._rig, self._rig.now_s() + budget_s
        for index, shape in enumerate(shapes):
            left_s = end_s - rig.now_s()
            if index and is_cut and left_s <= 0:
                break
            each_s = max(0.0, left_s) / ((len(shapes) - index) * len(sizes))
            for size in sizes:
                load = Unending(rig, shape)
                found = measure_times(load, shape[0], [size], each_s)
                self.times.setdefault(shape, {}).update(found)
                self.powers_w[shape, size] = load.power_w

    def full_hz(self, shape: Shape, size: int) -> float:
        """Return the requests per second that full batches in all sessions answer."""
        return shape[0] * size / float(self.times[shape][size].mean())
