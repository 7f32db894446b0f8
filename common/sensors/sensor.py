"""What a power sensor is to the sampler, and the two kinds of reading that every sensor is made of.

An energy counter says how much energy has flowed since some start, so the difference of two readings is exact
whatever happened in between; a gauge says how much power flows now, and what happens between two readings is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from common.errors import PipelineError

Clock = Callable[[], float]

# No package, memory or accelerator draws this much: a counter that says so was reset, it did not wrap.
MAX_DOMAIN_POWER_W = 10_000.0


@dataclass(frozen=True, slots=True)
class PowerSample:
    """Power of one domain: the mean since the previous sample for a counter, the moment's for a gauge.

    ``time_s`` is on the clock of ``time.perf_counter``, when the sensor was read.
    """

    time_s: float
    sensor: str
    sensor_domain: str
    power_w: float


class Sensor(Protocol):
    """One domain of one sensor."""

    @property
    def name(self) -> str:
        """How the domain is read: ``powercap``, ``pyRAPL``, ``nvml_energy``, ``nvml_power``."""
        ...

    @property
    def domain(self) -> str:
        """What is measured: ``package-0``, ``package-0/dram``, ``psys``, ``gpu-0``."""
        ...

    def sample(self) -> PowerSample | None:
        """Read the sensor; None where a first reading only starts the counting.

        Raises:
            PipelineError: the sensor cannot be read now; a later call may succeed.
        """
        ...


class CounterSensor:
    """Power from an energy counter in µJ.

    Args:
        name: how the domain is read.
        domain: what is measured.
        read_uj: gives the counter.
        range_uj: value at which the counter starts again from 0; None if it never does.
        clock: gives seconds.
    """

    def __init__(
        self,
        name: str,
        domain: str,
        read_uj: Callable[[], int],
        *,
        range_uj: int | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Start with no reading."""
        self.name = name
        self.domain = domain
        self._read_uj = read_uj
        self._range_uj = range_uj
        self._clock = clock
        self._previous: tuple[int, float] | None = None

    def sample(self) -> PowerSample | None:
        """Mean power since the last reading that succeeded."""
        energy_uj, now_s = self._read_uj(), self._clock()
        if self._previous is None or now_s <= self._previous[1]:
            self._previous = self._previous or (energy_uj, now_s)
            return None
        before_uj, before_s = self._previous
        self._previous = (energy_uj, now_s)
        power_w = 1e-6 * counted_uj(before_uj, energy_uj, self._range_uj) / (now_s - before_s)
        if not 0 <= power_w <= MAX_DOMAIN_POWER_W:
            raise PipelineError(f"{self.name} {self.domain}", "the energy counter was reset")
        return PowerSample(now_s, self.name, self.domain, power_w)


class GaugeSensor:
    """Power as an instrument shows it, in watts."""

    def __init__(
        self, name: str, domain: str, read_w: Callable[[], float], *, clock: Clock = time.perf_counter
    ) -> None:
        """Keep how to read it."""
        self.name = name
        self.domain = domain
        self._read_w = read_w
        self._clock = clock

    def sample(self) -> PowerSample | None:
        """Power of this moment."""
        power_w = self._read_w()
        return PowerSample(self._clock(), self.name, self.domain, power_w)


def counted_uj(before_uj: int, after_uj: int, range_uj: int | None) -> int:
    """Energy between two readings of a counter, exact to 1 µJ over a wrap; negative where a counter lost its count.

    Linux gives the range of a counter as the µJ of its largest value, so a wrap is short of one tick of the hardware
    (61 µJ on most processors), which is also what the counter cannot resolve
    (Documentation/power/powercap/powercap.rst, ``max_energy_range_uj``).
    """
    if after_uj >= before_uj or range_uj is None:
        return after_uj - before_uj
    return after_uj - before_uj + range_uj
