"""The newest samples of the sensors, and the power of the window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from common.sensors.quantities import POWER
from common.sensors.sensor import Sample

KEPT = 2000  # samples of power: 10 s of 20 domains


class Sensed:
    """A sink of a sampler; one thread writes and another one reads."""

    def __init__(self) -> None:
        self._newest: dict[str, float] = {}
        self._power: deque[Sample] = deque(maxlen=KEPT)

    def extend(self, samples: Iterable[Sample], /) -> None:
        """Keep each sample as the newest of its quantity and its domain."""
        for sample in samples:
            self._newest[f"{sample.quantity}:{sample.sensor_domain}"] = sample.value
            if sample.quantity == POWER:
                self._power.append(sample)

    def figures(self) -> dict[str, float]:
        """Return the newest samples by the keys of figures: ``power_w:package-0``."""
        return self._newest.copy()

    def power(self) -> list[Sample]:
        """Return the samples of power of the last seconds, oldest first."""
        return list(self._power.copy())
