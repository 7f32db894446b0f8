"""What a sensor is to the sampler, and the two kinds of reading that every sensor is made of.

A counter says how much has flowed since some start, so the difference of two readings is exact whatever happened in
between; a gauge says what is so now, and what happens between two readings is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from common.errors import PipelineError
from common.sensors.quantities import POWER

Clock = Callable[[], float]

# No package, memory or accelerator draws this much: a counter that says so was reset, it did not wrap.
MAX_DOMAIN_POWER_W = 10_000.0
# What changes slowly, or is brought up to date some times a second, is read no more often: it costs most of all.
SLOW_PERIOD_S = 0.2


class Sample(NamedTuple):
    """One value of one domain: the mean since the previous sample for a counter, the moment's for a gauge.

    A named tuple, since making a frozen dataclass takes four times as long, and the sampler is to cost nothing.
    ``time_s`` is on the clock of ``time.perf_counter``, when the sensor was read; ``quantity`` is declared in
    :mod:`common.sensors.quantities`.
    """

    time_s: float
    sensor: str
    sensor_domain: str
    quantity: str
    value: float


class Sensor(Protocol):
    """Some quantities of one domain, read together."""

    @property
    def name(self) -> str:
        """How the domain is read: ``powercap``, ``pyRAPL``, ``nvml_energy``, ``nvml_power``, ``psutil``, …."""
        ...

    @property
    def domain(self) -> str:
        """What is measured: ``package-0``, ``package-0/dram``, ``psys``, ``gpu-0``, ``host``, ``process``."""
        ...

    @property
    def quantities(self) -> tuple[str, ...]:
        """What it gives."""
        ...

    @property
    def period_s(self) -> float:
        """Reading it more often gives nothing new, or costs too much; 0 where each reading counts."""
        ...

    def restart(self) -> None:
        """Forget the last reading: the next samples count from the next reading on."""
        ...

    def sample(self) -> Sequence[Sample]:
        """Read the sensor; empty where a first reading only starts the counting.

        Raises:
            PipelineError: the sensor cannot be read now; a later call may succeed.
        """
        ...


class CounterSensor:
    """A rate from a counter; power from an energy counter in µJ, if nothing else is said.

    Args:
        name: how the domain is read.
        domain: what is measured.
        read_count: gives the counter.
        range_count: value at which the counter starts again from 0; None if it never does.
        clock: gives seconds.
        quantity: the rate's name.
        unit: what one count is, in the unit of the rate times one second.
        limit: a rate above this is that of a counter that was reset.
        period_s: shortest useful time between two readings.
    """

    def __init__(
        self,
        name: str,
        domain: str,
        read_count: Callable[[], int],
        *,
        range_count: int | None = None,
        clock: Clock = time.perf_counter,
        quantity: str = POWER,
        unit: float = 1e-6,
        limit: float = MAX_DOMAIN_POWER_W,
        period_s: float = 0.0,
    ) -> None:
        """Start with no reading."""
        self.name = name
        self.domain = domain
        self.quantities = (quantity,)
        self.period_s = period_s
        self._read_count = read_count
        self._range_count = range_count
        self._clock = clock
        self._unit = unit
        self._limit = limit
        self._previous: tuple[int, float] | None = None

    def restart(self) -> None:
        """Count from the next reading on."""
        self._previous = None

    def sample(self) -> Sequence[Sample]:
        """Mean rate since the last reading that succeeded."""
        count, now_s = self._read_count(), self._clock()
        previous = self._previous
        if previous is not None and now_s == previous[1]:
            return ()
        self._previous = (count, now_s)
        if previous is None:
            return ()
        if now_s < previous[1]:
            raise PipelineError(f"{self.name} {self.domain}", "the clock went backwards between two readings")
        rate = self._unit * counted(previous[0], count, self._range_count) / (now_s - previous[1])
        if not 0 <= rate <= self._limit:
            raise PipelineError(f"{self.name} {self.domain}", "the counter was reset between two readings")
        return (Sample(now_s, self.name, self.domain, self.quantities[0], rate),)


class GaugeSensor:
    """Quantities as an instrument shows them.

    Args:
        name: how the domain is read.
        domain: what is measured.
        quantities: what is read, in the order of the values.
        read: gives the values.
        clock: gives seconds.
        period_s: shortest useful time between two readings.
    """

    def __init__(
        self,
        name: str,
        domain: str,
        quantities: tuple[str, ...],
        read: Callable[[], Sequence[float]],
        *,
        clock: Clock = time.perf_counter,
        period_s: float = 0.0,
    ) -> None:
        """Keep how to read it."""
        self.name = name
        self.domain = domain
        self.quantities = quantities
        self.period_s = period_s
        self._read = read
        self._clock = clock

    def restart(self) -> None:
        """Nothing to forget."""

    def sample(self) -> Sequence[Sample]:
        """The values of this moment."""
        values = self._read()
        now_s = self._clock()
        return [
            Sample(now_s, self.name, self.domain, quantity, value)
            for quantity, value in zip(self.quantities, values, strict=True)
        ]


def counted(before: int, after: int, range_count: int | None) -> int:
    """What a counter counted between two readings, exactly, over one wrap; negative where it lost its count.

    Linux gives the range of a counter as the µJ of its largest value, so a wrap is short of one tick of the hardware
    (61 µJ on most processors), which is also what the counter cannot resolve
    (Documentation/power/powercap/powercap.rst, ``max_energy_range_uj``).
    """
    if after >= before or range_count is None:
        return after - before
    return after - before + range_count
