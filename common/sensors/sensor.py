"""The interface of a sensor, and its two kinds: counters and gauges.

A counter accumulates, so the difference of two readings is exact whatever happened in between. A gauge shows the
present value, and a change between two readings is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, Protocol

from common.messages.errors import PipelineError
from common.sensors.quantities import POWER

Clock = Callable[[], float]

# No package, memory or accelerator draws this much: a counter that implies it was reset and did not wrap.
MAX_DOMAIN_POWER_W = 10_000.0
# Period of quantities that change slowly or are updated only a few times a second; they are the costliest to read.
SLOW_PERIOD_S = 0.2


class Sample(NamedTuple):
    """One value of one domain: the mean since the previous sample for a counter, the present value for a gauge.

    This is a named tuple because creating a frozen dataclass takes four times as long, and sampling must cost little.
    """

    time_s: float  # of the reading, on the clock of ``time.perf_counter``
    sensor: str
    sensor_domain: str
    quantity: str  # one of :mod:`common.sensors.quantities`
    value: float


class Sensor(Protocol):
    """Quantities of one domain that are read together."""

    @property
    def name(self) -> str:
        """Reader of the domain: ``powercap``, ``pyRAPL``, ``nvml_energy``, ``nvml_power``, ``psutil``, …."""

    @property
    def domain(self) -> str:
        """Measured part: ``package-0``, ``package-0/dram``, ``psys``, ``gpu-0``, ``host``, ``process``."""

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of the quantities, as :mod:`common.sensors.quantities` declares them."""

    @property
    def period_s(self) -> float:
        """Shortest useful time between readings (more often costs too much or gives nothing new); 0 for no limit."""

    def restart(self) -> None:
        """Forget the last reading, so that counting starts at the next one."""

    def sample(self) -> Sequence[Sample]:
        """Read the sensor; return nothing if this first reading only starts the counting.

        Raises:
            PipelineError: the sensor cannot be read; a later call may succeed.
        """


@dataclass(eq=False, slots=True)
class CounterSensor:
    """A rate from a counter; by default power from an energy counter in µJ."""

    name: str
    domain: str
    read_count: Callable[[], int]
    _: KW_ONLY
    range_count: int | None = None  # value at which the counter wraps to 0; None if it never wraps
    clock: Clock = time.perf_counter
    quantity: str = POWER
    unit: float = 1e-6  # size of one count, in the unit of the rate times one second
    limit: float = MAX_DOMAIN_POWER_W  # a rate above this means that the counter was reset
    period_s: float = 0.0
    _previous: tuple[int, float] | None = field(default=None, init=False)

    @property
    def quantities(self) -> tuple[str, ...]:
        return (self.quantity,)

    def restart(self) -> None:
        self._previous = None

    def sample(self) -> Sequence[Sample]:
        """Return the mean rate since the last successful reading."""
        count, now_s = self.read_count(), self.clock()
        previous = self._previous
        if previous is not None and now_s == previous[1]:
            return ()
        self._previous = (count, now_s)
        if previous is None:
            return ()
        if now_s < previous[1]:
            raise PipelineError(f"{self.name} {self.domain}", "the clock went backwards between two readings")
        rate = self.unit * count_between(previous[0], count, self.range_count) / (now_s - previous[1])
        if not 0 <= rate <= self.limit:
            raise PipelineError(f"{self.name} {self.domain}", "the counter was reset between two readings")
        return (Sample(now_s, self.name, self.domain, self.quantity, rate),)


@dataclass(eq=False, slots=True)
class GaugeSensor:
    """Quantities as an instrument shows them; ``read`` returns their values in the same order."""

    name: str
    domain: str
    quantities: tuple[str, ...]
    read: Callable[[], Sequence[float]]
    _: KW_ONLY
    clock: Clock = time.perf_counter
    period_s: float = 0.0

    def restart(self) -> None:
        pass  # a gauge keeps no reading

    def sample(self) -> Sequence[Sample]:
        values = self.read()
        now_s = self.clock()
        return [
            Sample(now_s, self.name, self.domain, quantity, value)
            for quantity, value in zip(self.quantities, values, strict=True)
        ]


Found = tuple[list[Sensor], list[str]]  # sensors that can be read, and notes with a remedy for those that cannot


def together(found: Iterable[Found]) -> Found:
    sensors, notes = list[Sensor](), list[str]()
    for some, some_notes in found:
        sensors += some
        notes += some_notes
    return sensors, notes


def count_between(before: int, after: int, range_count: int | None) -> int:
    """Return the exact count between two readings, across at most one wrap; negative if the counter was reset.

    Linux gives the range of a counter as its largest value in µJ, so the count across a wrap is too small by one tick
    of the hardware (61 µJ on most processors), the resolution of the counter
    (Documentation/power/powercap/powercap.rst, ``max_energy_range_uj``).
    """
    if after >= before or range_count is None:
        return after - before
    return after - before + range_count
