"""Average power out of samples: which domains belong to a run, and their mean over its span."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from common.power.energy_model import Figure

NORMAL_95 = 1.96  # standard errors either side of a mean that hold 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class PowerSample:
    """Power of one domain at a time in seconds: the mean since the sample before it."""

    time_s: float
    sensor_domain: str
    power_w: float


def counted_domains(domains: Iterable[str], *, with_gpu: bool) -> tuple[str, ...]:
    """The domains to add up, no energy twice.

    ``psys`` holds the packages and their memory, so it stands in only where no package is measured. A GPU that does not
    run the model is not part of its energy; where one does and is not measured, the rest is not the energy either.
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
) -> Figure | None:
    """Mean power from ``start_s`` to ``end_s``, summed over some domains.

    Each sample stands for the time since the one before it. The interval is that of the mean (±1.96 standard errors,
    the domains' added in quadrature); None where one of the domains has fewer than two samples in the span: a sum
    without it is another quantity, and one sample has no spread.
    """
    series = _by_domain(samples)
    means = {domain: mean for domain in domains if (mean := _mean(series.get(domain, ()), start_s, end_s))}
    return _sum(means, domains) if domains and len(means) == len(domains) else None


def idle_power(samples: Sequence[PowerSample], domains: Sequence[str]) -> Figure | None:
    """Mean power over all samples of some domains; they were taken before the runs.

    What the first one stands for is not known; it is taken to be as long as the median of the others.
    """
    series = [of for domain, of in _by_domain(samples).items() if domain in domains]
    steps_s = [later.time_s - earlier.time_s for of in series for earlier, later in pairwise(of)]
    if not steps_s:
        return None
    start_s = min(of[0].time_s for of in series) - statistics.median(steps_s)
    return average_power(samples, domains, start_s, max(of[-1].time_s for of in series))


def _by_domain(samples: Sequence[PowerSample]) -> dict[str, list[PowerSample]]:
    """The samples of each domain, by time."""
    series: dict[str, list[PowerSample]] = {}
    for sample in sorted(samples, key=lambda sample: sample.time_s):
        series.setdefault(sample.sensor_domain, []).append(sample)
    return series


def measured_static(idle: Figure | None, run: Figure | None) -> tuple[Figure | None, list[str]]:
    """Static power as the idle host showed it, where the runs took more; else None and why."""
    if idle is None or run is None:
        return None, []
    if idle.value < run.value:
        return idle, []
    problem = f"the host took {idle.value:.3g} W before the runs and {run.value:.3g} W in them, so it did not idle"
    return None, [f"energy: {problem}; stop other work and rerun 01_profile_onnx.py, or give --static-power-w"]


def _mean(samples: Sequence[PowerSample], start_s: float, end_s: float) -> tuple[float, float] | None:
    """Time-weighted mean and its standard error; None without two samples in the span."""
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


def _sum(means: Mapping[str, tuple[float, float]], domains: Sequence[str]) -> Figure:
    power_w = sum(means[domain][0] for domain in domains)
    half_w = NORMAL_95 * math.sqrt(sum(means[domain][1] ** 2 for domain in domains))
    return Figure(power_w, max(power_w - half_w, 0.0), power_w + half_w, "measured")
