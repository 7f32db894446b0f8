"""The histogram of a long load against all its latencies, and the calls of a run as series."""

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.latency.statistics import QUANTILES, percentile
from common.load.endurance.whole_load import WholeLoad
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import COMPLETED
from common.load.requests.schedules import poisson
from common.load.requests.sources import OpenLoop
from common.load.results.load_figures import LoadTest
from common.load.results.load_tables import call_series, slow_call_rows

MS = 1_000_000


def part(seed, rate=300, seconds=7.0):
    """M/D/1 at 60 %: requests wait together."""
    record = simulate(OpenLoop(poisson(rate, seconds, seed)), lambda batch, now_ns: 2 * MS, BatchPolicy())
    return LoadTest(record, BatchPolicy(), worker_count=1, is_open=True)


@pytest.mark.slow
def test_the_percentiles_of_all_parts_are_those_of_all_their_requests():
    whole, parts = WholeLoad(), [part(seed) for seed in range(5)]
    for one in parts:
        whole.add(one)
    latencies_us = np.concatenate([one.record.latencies_us for one in parts])
    found = whole.figures()
    assert found["counted_request_count"] == len(latencies_us) > 9000
    for name, quantile in QUANTILES.items():
        value, low, high = (found[f"request_{name}{end}_us"] for end in ("", "_low", "_high"))
        assert value == pytest.approx(float(np.quantile(latencies_us, quantile)), rel=0.001)
        independent = np.quantile(latencies_us, quantile)
        assert low is None or low <= independent * 1.001
        assert high is None or high >= independent * 0.999
    # The limits are as wide as those of the series itself, in which requests wait together.
    one, own = WholeLoad(), parts[0].record.latencies_us
    one.add(parts[0])
    for name in ("p50", "p90"):
        expected = percentile(own, QUANTILES[name], parts[0].latency_factor)
        limits = [one.figures()[f"request_{name}_{end}_us"] for end in ("low", "high")]
        assert limits == pytest.approx([expected.low, expected.high], rel=0.001)


def test_parts_without_a_verdict_count_nothing():
    whole = WholeLoad()
    whole.add(part(1, rate=600))  # 120 %: the queue grows
    found = whole.figures()
    assert found.pop("counted_request_count") == 0
    assert set(found.values()) == {None} and len(found) == 15


def test_calls_are_compared_with_those_of_their_worker_and_size():
    def service_ns(batch, now_ns):
        return (2 if len(batch.requests) == 1 else 3) * MS

    source = OpenLoop(poisson(900, 1.0, 3))
    record = simulate(source, service_ns, BatchPolicy(most=2), workers=2)
    series = call_series(record, first=100)
    assert len(series) == 4  # two workers, one request or two
    assert all(set(one.latencies_us) in ({2000.0}, {3000.0}) for one in series)
    indices = np.sort(np.concatenate([one.run_indices for one in series]))
    assert indices.tolist() == [*range(100, len(record.batches.sizes))]
    chosen = series[0]
    index = int(chosen.run_indices[4])
    assert chosen.starts_s[4] == pytest.approx(record.start_s + record.batches.started_ns[index] / 1e9)
    row = slow_call_rows(record, [{"load_batch_index": index, "lost_us": 7.0}])[0]
    assert row["request_count"] == (record.batch_indices[record.outcomes == COMPLETED] == index).sum()
    assert (row["worker_index"], row["lost_us"]) == (record.batches.workers[index], 7.0)


def test_a_batch_that_never_ended_is_no_call():
    """Its worker was in it when a signal came."""
    source = OpenLoop(poisson(900, 1.0, 3))
    record = simulate(source, lambda batch, now_ns: 2 * MS, BatchPolicy(), end_ns=801 * MS)
    assert record.batches.ended_ns[-1] == record.batches.started_ns[-1]
    (series,) = call_series(record)
    assert series.run_indices.tolist() == [*range(len(record.batches.sizes) - 1)]
