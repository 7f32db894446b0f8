"""Long loads on a virtual clock: what a minute delivered, memory that grows, and speed that falls."""

import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.endurance.parts import course, endure, minute_rows, part_of, summary
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand
from common.load.requests.schedules import constant
from common.load.requests.sources import OpenLoop
from common.load.results.load_figures import LoadTest
from common.load.results.validity import LoadValidity
from common.view.load.load_text import speed_text

RATE_HZ, PART_S, PARTS = 53.0, 60.0, 8
BEGIN_S = 1000.0


@dataclass(frozen=True)
class Reading:
    time_s: float
    quantity: str
    value: float


def load(service_ms=lambda part, random: 5.0, parts=PARTS):
    random = np.random.default_rng(0)

    def run_part(index, duration_s):
        def service_ns(batch, now_ns):
            noise = random.normal(0, 0.05)
            return round(1e6 * (service_ms(index, random) + noise))

        record = simulate(OpenLoop(constant(RATE_HZ, duration_s)), service_ns, BatchPolicy())
        return part_of(LoadTest(replace(record, start_s=BEGIN_S + index * PART_S), BatchPolicy(), 1, is_open=True))

    return endure(run_part, parts * PART_S, PART_S)


def memory(leak=0.0, parts=PARTS):
    times = BEGIN_S + np.arange(0, parts * PART_S, 1.0)
    return [Reading(t, "memory_resident_bytes", 3e8 + leak * RATE_HZ * (t - BEGIN_S)) for t in times]


@pytest.mark.slow
def test_each_minute_has_a_row():
    parts = load()
    rows = minute_rows(parts, [*memory(), Reading(BEGIN_S + 90, "handle_count", 17.0)])
    assert [row["part_index"] for row in rows] == [*range(PARTS)]
    assert [row["part_start_us"] for row in rows] == [60e6 * index for index in range(PARTS)]
    assert {row["sent_count"] for row in rows} == {round(RATE_HZ * PART_S)}
    assert rows[0]["answered_requests_per_s"] == pytest.approx(RATE_HZ, rel=0.01)
    assert rows[0]["request_p50_us"] == pytest.approx(5000, rel=0.01)
    assert rows[0]["call_us"] == pytest.approx(5000, rel=0.01)
    assert [row["handle_count"] for row in rows] == [None, 17.0, *[None] * (PARTS - 2)]
    assert rows[3]["resident_bytes"] == 3e8


def test_a_minute_that_is_not_judged_has_no_percentile():
    part = replace(load(parts=1)[0], validity=LoadValidity("overload", "the queue grows"), figures={})
    row = minute_rows([part], [])[0]
    assert row["validity"] == "overload"
    assert row["request_p99_us"] is None
    assert row["resident_bytes"] is None


@pytest.mark.slow
@pytest.mark.parametrize("leak", [0.0, 1024.0, 200.0])
def test_a_leak_is_in_bytes_per_inference(leak):
    found = course(load(), memory(leak)).leak
    assert found.is_leak == bool(leak)
    assert found.low <= leak <= found.high


@pytest.mark.slow
def test_samples_outside_the_load_do_not_count():
    before = [Reading(BEGIN_S - 500 + t, "memory_resident_bytes", 1e6 * t) for t in range(500)]
    after = [Reading(BEGIN_S + PARTS * PART_S + t, "memory_resident_bytes", 1e9 + 1e6 * t) for t in range(500)]
    assert not course(load(), [*before, *memory(), *after]).leak.is_leak


def test_without_samples_nothing_is_said_of_memory():
    assert course(load(parts=1), []).leak is None
    assert course([], memory()).steadiness is None


@pytest.mark.slow
def test_a_level_that_holds_is_no_drift():
    found = course(load(), memory())
    assert (found.steadiness.kind, found.cause) == ("flat", "")
    assert abs(found.drift) < 0.01


def test_a_single_level_is_no_drift_however_short_the_load():
    part = replace(load(parts=1)[0], call_us=np.array([94.0]), call_ends_s=np.array([1.0]), answered=np.array([53.0]))
    found = course([part], [])
    assert (found.cause, found.drift) == ("", 0.0)
    assert "drift" not in speed_text(summary(found, [part]))


def slower(part, random):
    return 5.0 if part < PARTS // 2 else 6.0


def clock(low_mhz):
    half = BEGIN_S + PARTS * PART_S / 2
    times = BEGIN_S + np.arange(0, PARTS * PART_S, 5.0)
    return [Reading(t, "cpu_frequency_mhz", 3000.0 if t < half else low_mhz) for t in times]


@pytest.mark.slow
@pytest.mark.parametrize(("low_mhz", "cause"), [(2500.0, "throttling"), (2990.0, "drift"), (None, "drift")])
def test_a_slower_second_half_is_throttling_where_the_clock_fell_too(low_mhz, cause):
    found = course(load(slower), clock(low_mhz) if low_mhz else [])
    assert found.cause == cause
    assert found.drift == pytest.approx(0.2, abs=0.01)
    change = found.steadiness.segments[-1].start
    assert change == pytest.approx(PARTS * PART_S / 2, abs=2)


def begins(parts):
    return [(part.start_s, part.is_interrupted, part.sent_count, part.figures) for part in parts]


@pytest.mark.slow
def test_an_interrupted_load_keeps_what_was_measured():
    parts = load(parts=3)
    cut = [parts[0], replace(parts[1], is_interrupted=True), parts[2]]
    assert begins(endure(lambda index, seconds: cut[index], 600.0)) == begins(cut[:2])


@pytest.mark.slow
def test_a_signal_between_two_minutes_keeps_what_was_measured():
    parts = load(parts=3)

    def run_part(index, seconds):
        if index == 2:
            raise KeyboardInterrupt
        return parts[index]

    assert begins(endure(run_part, 600.0)) == begins(parts[:2])


@pytest.mark.slow
def test_sixty_parts_at_1000_requests_per_second_need_no_more_memory_than_two():
    """A run of 5,000 requests allocates a megabyte; what is kept of it stands in a file."""
    peaks, kept = [], []

    def run_part(index, duration_s):
        demand = Demand(1000.0, duration_s, index)
        source, _ = demand.source(demand.schedule(), BatchPolicy(most=8))
        record = simulate(source, lambda batch, now_ns: 2_000_000, BatchPolicy(most=8))
        part = part_of(LoadTest(record, BatchPolicy(most=8), 1, is_open=True))
        del record, source
        held, peak = tracemalloc.get_traced_memory()
        kept.append(held)
        peaks.append(peak)
        tracemalloc.reset_peak()
        return part

    tracemalloc.start()
    try:
        parts = endure(run_part, 300.0, 5.0)
    finally:
        tracemalloc.stop()
    assert len(parts) == 60
    assert sum(part.counts["completed"] for part in parts) == pytest.approx(300_000, rel=0.01)
    assert peaks[2] - kept[2] > 300_000
    assert max(peaks[2:]) <= 1.3 * max(peaks[:2])
    assert max(kept[2:]) - kept[2] <= 58 * 2_000


def test_a_load_is_divided_into_equal_parts():
    lengths = []
    endure(lambda index, seconds: lengths.append(seconds) or load(parts=1)[0], 150.0)
    assert lengths == [75.0, 75.0]


@pytest.mark.slow
def test_the_summary_has_the_levels_by_their_begin():
    parts = load(slower)
    text = summary(course(parts, [*memory(1024.0), *clock(2500.0)]), parts)
    assert text["is_leak"]
    assert text["leak_low_bytes_per_inference"] <= 1024 <= text["leak_high_bytes_per_inference"]
    assert (text["call_steady_state"], text["slowdown_cause"]) == ("slowdown", "throttling")
    first, second = text["call_levels"].items()
    assert first == ("0", pytest.approx(5000, rel=0.01))
    assert float(second[0]) == pytest.approx(240, abs=2) and second[1] == pytest.approx(6000, rel=0.01)
