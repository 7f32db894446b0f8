"""Average power from samples: the domains that belong to a run, and their mean over its time span."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from common.graphs.grouping import grouped
from common.power.bounded_value import BoundedValue

TWO_SIDED_Z = 1.96  # 95 % of a normal distribution is within this many standard errors of the mean


@dataclass(frozen=True, slots=True)
class PowerSample:
    """Mean power of one domain since its previous sample; ``time_s`` is the end of that time."""

    time_s: float
    sensor_domain: str
    power_w: float


def counted_domains(domains: Iterable[str], *, with_gpu: bool) -> tuple[str, ...]:
    """Return the domains to add up, so that no energy is counted twice.

    ``psys`` includes the packages and their memory, so it counts only if no package is measured. A GPU counts only if
    it runs the model. If a GPU that runs the model is not measured, no domain counts: the others alone would be too
    little.
    """
    known = sorted(set(domains))
    gpus = [domain for domain in known if with_gpu and domain.startswith("gpu")]
    if with_gpu and not gpus:
        return ()
    packages = [domain for domain in known if domain.startswith("package")]
    has_package = any("/" not in domain for domain in packages)  # its memory alone is not the processor's power
    cpu = packages if has_package else [name for name in known if name == "psys"]
    return (*cpu, *gpus)


def average_power(
    samples: Sequence[PowerSample], domains: Sequence[str], start_s: float, end_s: float
) -> BoundedValue | None:
    """Return the mean power from ``start_s`` to ``end_s``, summed over domains.

    Each sample covers the time since the previous one. The interval is ±1.96 standard errors of the mean, where the
    errors of the domains add in quadrature. The result is None if a domain has fewer than two samples in the span: a
    sum without the domain would be another quantity, and one sample has no spread.
    """
    series = _by_domain(samples)
    means = [mean for domain in domains if (mean := _mean(series.get(domain, ()), start_s, end_s))]
    if not domains or len(means) < len(domains):
        return None
    power_w = sum(mean_w for mean_w, _ in means)
    half_w = TWO_SIDED_Z * math.sqrt(sum(error_w**2 for _, error_w in means))
    return BoundedValue(power_w, max(power_w - half_w, 0.0), power_w + half_w, "measured")


def idle_power(samples: Sequence[PowerSample], domains: Sequence[str]) -> BoundedValue | None:
    """Return the mean power over all samples of the idle host, summed over domains.

    The time that the first sample covers is unknown; the median time of the other samples is assumed.
    """
    series = [readings for domain, readings in _by_domain(samples).items() if domain in domains]
    steps_s = [later.time_s - earlier.time_s for readings in series for earlier, later in pairwise(readings)]
    if not steps_s:
        return None
    start_s = min(readings[0].time_s for readings in series) - statistics.median(steps_s)
    return average_power(samples, domains, start_s, max(readings[-1].time_s for readings in series))


def _by_domain(samples: Sequence[PowerSample]) -> dict[str, list[PowerSample]]:
    return grouped((sample.sensor_domain, sample) for sample in sorted(samples, key=lambda sample: sample.time_s))


def measured_static(idle: BoundedValue | None, run: BoundedValue | None) -> tuple[BoundedValue | None, list[str]]:
    """Return the power of the idle host as static power; None and a note if the runs drew no more than that."""
    if idle is None or run is None:
        return None, []
    if idle.likely < run.likely:
        return idle, []
    problem = f"the host drew {idle.likely:.3g} W before the runs and {run.likely:.3g} W during them; it was not idle"
    return None, [f"energy: {problem}; stop other work and rerun <power_samples>, or give <static_power_w>"]


def _mean(samples: Sequence[PowerSample], start_s: float, end_s: float) -> tuple[float, float] | None:
    """Return the time-weighted mean and its standard error; None with fewer than two samples in the span."""
    weighted = []
    since_s = start_s
    for sample in samples:
        weight_s = min(sample.time_s, end_s) - max(since_s, start_s)
        since_s = sample.time_s
        if weight_s > 0:
            weighted.append((weight_s, sample.power_w))
    if len(weighted) < 2:
        return None
    total_s = sum(weight for weight, _ in weighted)
    mean = sum(weight * power for weight, power in weighted) / total_s
    variance = sum(weight * (power - mean) ** 2 for weight, power in weighted) / total_s
    return mean, math.sqrt(variance / (len(weighted) - 1))
