"""Compare the predicted queue of the load stages with queues whose percentiles are known, by law, load and servers.

Run by ``make check-queue``, for half an hour; no test depends on it. The predicted queue is given 20,000 equally likely
values of each law. One server has an exact distribution: the transform of Pollaczek and Khinchine, inverted by a fast
Fourier transform on a million cells. Several servers with exponential calls have Erlang's C. The others are simulated
here request after request, without the first tenth, for ``--requests`` requests. The error of that simulation is in the
table, as the largest of its three percentiles. The laws of ``HELD_OUT`` took no part in the design. The last table
gives the prediction random samples instead, as a search does, and says how many of them the note calls too small.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist

import numpy as np
from scipy.optimize import brentq

from common.latency.dependence import Samples
from common.load.search.batch_times import unknown_tail
from common.load.search.bulk_queue import JUDGED, predict
from common.view.text import text_table

VALUES = 20_000
LEVELS = (np.arange(VALUES) + 0.5) / VALUES
CELLS = 1 << 20
NEGLIGIBLE = 20.0  # the exact distribution ends where e^-20 of the waits are longer
LOADS, SERVERS = (0.5, 0.7, 0.9), (1, 2, 4, 8)
TOGETHER = 500_000  # requests whose times are drawn at once
PARTS = 20  # of a simulation, whose percentiles say how uncertain it is
TIMED, DRAWS = (100, 300, 2000, 20_000), 5
WIDTH = 120
SAMPLED = ("exponential", "lognormal 0.5", "1 % of the calls 20 times", "5 % of the calls 10 times", "gamma 0.3")


def slow(share: float, factor: float) -> Samples:
    return np.where(1 - share > LEVELS, 1.0, factor)


def lognormal(sigma: float) -> Samples:
    normal = NormalDist()
    return np.exp(sigma * np.array([normal.inv_cdf(float(level)) for level in LEVELS]))


def gamma(shape: float) -> Samples:
    from scipy.stats import gamma as law

    return np.asarray(law.ppf(LEVELS, shape))


DESIGN: Mapping[str, Samples] = {
    "constant": np.ones(1),
    "exponential": -np.log(1 - LEVELS),
    "lognormal 0.5": lognormal(0.5),
    "two values, half each": slow(0.5, 3.0),
    "1 % of the calls 20 times": slow(0.01, 20.0),
    "5 % of the calls 10 times": slow(0.05, 10.0),
    "5 % of the calls 19 times": slow(0.05, 19.0),
}
HELD_OUT: Mapping[str, Samples] = {
    "Weibull 0.6": (-np.log(1 - LEVELS)) ** (1 / 0.6),
    "gamma 0.3": gamma(0.3),
    "Pareto 2.2, to 100": (1 - LEVELS * (1 - 100**-2.2)) ** (-1 / 2.2),
    "three values": np.select([LEVELS < 0.9, LEVELS < 0.98], [1.0, 5.0], 25.0),
    "2 % of the calls 30 times": slow(0.02, 30.0),
}


def exact_percentiles(times: Samples, load: float) -> Samples:
    """Return percentiles of the response of M/G/1 (Pollaczek 1930, Khinchine 1932).

    A wait is a sum of residual calls, as many as a geometric law of ``load`` says. The tail decays at least as fast as
    exp(-x log(1 + most / wait) / most), by the longest call and the mean wait.
    """
    mean, most = float(times.mean()), float(times.max())
    wait = load * float(np.mean(times**2)) / (2 * mean * (1 - load))
    cell = (NEGLIGIBLE * most / math.log1p(most / wait) + 2 * most) / CELLS
    edges = np.arange(CELLS + 1) * cell
    ordered = np.sort(times)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    shorter = np.searchsorted(ordered, edges)
    means_below = (sums[shorter] + edges * (len(ordered) - shorter)) / len(ordered)  # E[min(call, edge)]
    residual = np.diff(means_below) / mean
    residual = (residual + np.concatenate([[0.0], residual[:-1]])) / 2  # a cell's mass goes to both of its edges
    places = times / cell
    low = np.floor(places).astype(int)
    calls = np.bincount(low, 1 - (places - low), CELLS) + np.bincount(low + 1, places - low, CELLS)
    transform = (1 - load) / (1 - load * np.fft.rfft(residual)) * np.fft.rfft(calls / len(times))
    shares = np.cumsum(np.fft.irfft(transform, CELLS))
    return np.array([edges[int(np.searchsorted(shares, quantile))] for quantile in JUDGED])


def erlang_percentiles(load: float, servers: int) -> Samples:
    """Return percentiles of the response of M/M/c with calls of mean 1 (Erlang 1917)."""
    offered = load * servers
    full = offered**servers / math.factorial(servers) / (1 - load)
    queued = full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)
    decay = servers * (1 - load) + 1e-9  # a decay of 1 would be a case of its own
    ratio = queued * decay / (decay - 1)

    def beyond(time: float) -> float:
        return (1 - queued + ratio) * math.exp(-time) - (ratio - queued) * math.exp(-decay * time)

    return np.array([brentq(lambda time, left=1 - level: beyond(time) - left, 0, 1e3) for level in JUDGED])


def played(times: Samples, load: float, servers: int, requests: int, seed: int) -> Samples:
    """Return responses of M/G/c, played request by request."""
    random = np.random.default_rng(seed)
    gap, came = float(times.mean()) / (load * servers), 0.0
    free, parts = [0.0] * servers, []
    for _ in range(max(1, requests // TOGETHER)):
        comes = came + np.cumsum(random.exponential(gap, TOGETHER))
        calls = times[random.integers(0, len(times), TOGETHER)]
        ends = np.empty(TOGETHER)
        for place, (came, call) in enumerate(zip(comes.tolist(), calls.tolist(), strict=True)):
            ends[place] = end = max(free[0], came) + call
            heapq.heapreplace(free, end)
        parts.append(ends - comes)
    return np.concatenate(parts)[requests // 10 :]


def known(name: str, times: Samples, load: float, servers: int, requests: int) -> tuple[Samples, float]:
    """Return the percentiles of a queue, and the largest standard error of them over the percentile."""
    if servers == 1:
        return exact_percentiles(times, load), 0.0
    if name == "exponential":
        return erlang_percentiles(load, servers), 0.0
    responses = played(times, load, servers, requests, servers)
    found = np.quantile(responses, JUDGED)
    parts = np.array([np.quantile(part, JUDGED) for part in np.array_split(responses, PARTS)])
    return found, float((parts.std(axis=0, ddof=1) / math.sqrt(PARTS) / found).max())


def error_rows(laws: Mapping[str, Samples], requests: int) -> Iterator[list[str]]:
    for name, times in laws.items():
        for servers in SERVERS:
            cells = []
            for load in LOADS:
                exact, uncertain = known(name, times, load, servers, requests)
                found = predict(load * servers / float(times.mean()), [times], session_count=servers)
                assert found is not None
                errors = np.array([found.quantile_s(quantile) for quantile in JUDGED]) / exact - 1
                own = f" ±{uncertain:.1%}" if uncertain else ""
                cells.append(" ".join(f"{error:+.1%}" for error in errors) + own)
            yield [f"{name}, {servers}", *cells]


def sample_rows(laws: Mapping[str, Samples], load: float) -> Iterator[list[str]]:
    """Yield for each law how far p99 predicted from random samples is away, and how many of them the note names."""
    random = np.random.default_rng(1)
    for name, times in laws.items():
        exact, cells = float(exact_percentiles(times, load)[-1]), []
        for count in TIMED:
            samples = [times[random.integers(0, len(times), count)] for _ in range(DRAWS)]
            rate = load / float(times.mean())
            found = [predict(rate, [own]) for own in samples]
            away = [abs(own.quantile_s(0.99) / exact - 1) for own in found if own]
            named = sum(bool(unknown_tail({1: own})) for own in samples)
            cells.append(f"{np.median(away):.0%} {max(away):.0%}, {named} of {DRAWS}")
        yield [name, *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4_000_000, help="of each simulation")
    options = parser.parse_args()
    for title, laws in (("design", DESIGN), ("held out", HELD_OUT)):
        header = (f"{title}: law, servers; p50 p90 p99", *(f"load {load:.0%}" for load in LOADS))
        print(text_table(header, error_rows(laws, options.requests), width=WIDTH), flush=True)
    few: dict[str, Samples] = {name: {**DESIGN, **HELD_OUT}[name] for name in SAMPLED}
    header = ("p99 at 70 % from samples: median, largest error; named", *(f"{count:,} calls" for count in TIMED))
    print(text_table(header, sample_rows(few, 0.7), width=WIDTH))


if __name__ == "__main__":
    main()
