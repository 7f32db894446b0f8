"""The ring of runs, and the figures of a window, against numpy and the ranks of order statistics."""

from __future__ import annotations

import numpy as np
import pytest

from common.latency.histogram import Histogram
from common.latency.statistics import QUANTILES, limit_ranks
from common.monitor.figures import feed as feed_room
from common.monitor.figures.feed import CAPACITY, LEAST_RUNS, Feed, cells, whole_figures, window_figures

MS = 1_000_000


def filled(durations_ns, every_ns=10 * MS):
    feed = Feed()
    for place, duration_ns in enumerate(durations_ns, 1):
        feed.record(place * every_ns, duration_ns)
    return feed


@pytest.mark.parametrize("name", QUANTILES)
def test_a_percentile_needs_as_many_runs_as_its_upper_limit(name):
    least = LEAST_RUNS[name]
    assert limit_ranks(least, QUANTILES[name])[1] is not None
    assert limit_ranks(least - 1, QUANTILES[name])[1] is None


def test_the_window_holds_what_ended_within_it():
    feed = filled(range(1, 3001))  # 30 s
    durations_ns, window_s = feed.window(3000 * 10 * MS)
    assert window_s == 10.0
    assert durations_ns.tolist() == [*range(2000, 3001)]


def test_a_window_that_is_not_over_is_as_long_as_it_was():
    feed = filled([7 * MS] * 13)
    durations_ns, window_s = feed.window(131 * MS)
    assert len(durations_ns) == 13
    assert window_s == pytest.approx(0.131 - 0.003)  # the first run began at 3 ms


def test_nothing_has_run_for_longer_than_the_window():
    durations_ns, window_s = filled([5] * 3).window(60_000 * MS)
    assert (len(durations_ns), window_s) == (0, 10.0)
    figures = window_figures(durations_ns, window_s)
    assert figures["throughput_runs_per_s"] == 0.0
    assert figures["window_p50_us"] is None
    assert cells(durations_ns) == []


def test_the_ring_keeps_the_newest():
    feed = filled(range(CAPACITY + 997), every_ns=1000)
    durations_ns, window_s = feed.window((CAPACITY + 997) * 1000)
    assert durations_ns.tolist() == [*range(998, CAPACITY + 997)]  # the place that may be written now is left out
    assert window_s == pytest.approx((CAPACITY - 2) * 1e-6)


def test_what_is_overwritten_while_it_is_copied_is_left_out(monkeypatch):
    feed, copied = filled(range(CAPACITY), every_ns=1000), []
    real = np.frombuffer

    def meanwhile(buffer, dtype):
        if not copied:  # before the first copy, 500 more runs come
            for place in range(CAPACITY, CAPACITY + 500):
                feed.record((place + 1) * 1000, place)
        copied.append(buffer)
        return real(buffer, dtype=dtype)

    monkeypatch.setattr(feed_room.np, "frombuffer", meanwhile)
    durations_ns, window_s = feed.window(CAPACITY * 1000)
    assert durations_ns.tolist() == [*range(501, CAPACITY)]
    assert window_s > 0.01  # not from an end that lies in the future


def test_runs_since_the_last_look():
    feed = filled(range(100))
    durations_ns, count = feed.since(60)
    assert durations_ns.tolist() == [*range(60, 100)]
    assert (feed.since(count)[0].size, count) == (0, 100)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 29, 298, 299, 2995, 7001])
def test_window_figures_are_those_of_numpy(count):
    durations_ns = np.random.default_rng(count).lognormal(13, 0.7, count).astype(np.int64)
    figures = window_figures(np.sort(durations_ns), 7.0)
    micros = durations_ns / 1e3
    for name, quantile in QUANTILES.items():
        expected = np.quantile(micros, quantile) if limit_ranks(count, quantile)[1] else None
        assert figures[f"window_{name}_us"] == (pytest.approx(expected) if expected else None)
    assert figures["window_mean_us"] == pytest.approx(micros.mean())
    assert figures["throughput_runs_per_s"] == pytest.approx(count / 7.0)
    assert figures["window_jitter_us"] == (pytest.approx(micros.std(ddof=1)) if count > 1 else None)


@pytest.mark.parametrize("count", [1, 7, 300, 5000])
def test_figures_of_the_whole_are_those_of_all_runs(count):
    durations_ns = np.random.default_rng(count).lognormal(13, 0.7, count).astype(np.int64)
    histogram = Histogram()
    histogram.add(durations_ns)
    figures = whole_figures(histogram)
    ordered = np.sort(durations_ns) / 1e3
    for name, quantile in QUANTILES.items():
        if limit_ranks(count, quantile)[1] is None:
            assert figures[f"{name}_us"] is None
        else:
            rank = int(np.ceil(quantile * count))
            assert figures[f"{name}_us"] == pytest.approx(ordered[rank - 1], rel=1 / 2048)
    assert figures["run_count"] == count
    assert figures["max_us"] == ordered[-1]


def test_every_run_is_in_its_cell():
    durations_ns = np.random.default_rng(3).integers(1, 10**9, 1009)
    drawn = cells(np.sort(durations_ns))
    assert sum(count for _, count in drawn) == 1009
    edges = np.array([low_us for low_us, _ in drawn] + [drawn[-1][0] * 2**0.25]) * 1e3
    expected, _ = np.histogram(durations_ns, edges)
    assert np.abs(expected - [count for _, count in drawn]).sum() <= 2  # a value on an edge, in floats


@pytest.mark.parametrize("durations_ns", [[0], [1], [0, 0, 7], [1024] * 5, [1024, 2048], [2**40, 2**40 + 1]])
def test_odd_runs_are_in_cells_that_reach_around_them(durations_ns):
    drawn = cells(np.array(durations_ns))
    assert sum(count for _, count in drawn) == len(durations_ns)
    assert drawn[0][0] * 1e3 <= max(durations_ns[0], 1)
    assert drawn[-1][0] * 1e3 * 2**0.25 > durations_ns[-1]
    assert drawn[0][1]
    assert drawn[-1][1]
