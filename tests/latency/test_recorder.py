"""The recorder: what it stores, what it counts, and that storing takes no memory."""

import tracemalloc

import numpy as np
import pytest

from common.latency.recorder import CAPACITY, Recorder
from common.latency.statistics import figures, percentile


def filled(durations_ns, capacity):
    recorder = Recorder(capacity)
    for index, duration_ns in enumerate(durations_ns):
        recorder.record(index * 10**9, index * 10**9 + int(duration_ns))
    return recorder


def test_starts_in_s_and_latencies_in_us():
    recorder = Recorder(3)
    recorder.record(5_000_000_007, 5_000_002_507)
    recorder.record(6_500_000_000, 6_500_000_001)
    assert recorder.starts_s.tolist() == [5.000000007, 6.5]
    assert recorder.latencies_us.tolist() == [2.5, 0.001]
    assert (recorder.starts_s.dtype, recorder.latencies_us.dtype) == (np.float64, np.float64)
    assert (recorder.count, recorder.stored_count, recorder.beyond.count) == (2, 2, 0)


def test_the_first_ones_are_stored_and_the_rest_is_counted():
    recorder = filled([2000, 3000, 5000, 7000, 11000], capacity=3)
    assert recorder.latencies_us.tolist() == [2, 3, 5]
    assert recorder.starts_s.tolist() == [0, 1, 2]
    assert (recorder.count, recorder.stored_count, recorder.beyond.count) == (5, 3, 2)
    assert (recorder.beyond.min_ns, recorder.beyond.max_ns) == (7000, 11000)


def test_the_histogram_of_all_but_the_first():
    recorder = filled([2000, 3000, 5000, 7000, 11000], capacity=3)
    steady = recorder.histogram(1)
    assert (steady.count, steady.min_ns, steady.max_ns) == (4, 3000, 11000)
    assert steady.mean_us == pytest.approx(26 / 4)
    assert recorder.beyond.count == 2  # it is as it was


def test_what_was_read_stays_when_more_is_recorded():
    recorder = filled([2000], capacity=2)
    before = recorder.latencies_us
    recorder.record(0, 9000)
    assert (before.tolist(), recorder.latencies_us.tolist()) == ([2], [2, 9])


def test_figures_of_what_is_stored_are_exact():
    durations_ns = np.random.default_rng(0).integers(10**6, 2 * 10**6, 311)
    assert filled(durations_ns, capacity=311).figures(11) == figures(durations_ns[11:] / 1e3)


def test_figures_beyond_the_stored_are_within_a_thousandth():
    durations_ns = np.random.default_rng(0).lognormal(14, 0.4, 3307).astype(np.int64)
    found = filled(durations_ns, capacity=1009).figures(7)
    exact = figures(durations_ns[7:] / 1e3)
    assert found.keys() == exact.keys()
    for name in exact:
        if not name.startswith(("mean_", "jitter_")) and not name.endswith(("_low_us", "_high_us")):
            assert found[name] == pytest.approx(exact[name], rel=0.0005), name
    assert (found["mean_us"], found["jitter_us"]) == pytest.approx((exact["mean_us"], exact["jitter_us"]), rel=1e-9)


def test_limits_of_the_mean_are_those_of_the_stored_and_narrower():
    durations_ns = np.random.default_rng(0).lognormal(14, 0.4, 4000).astype(np.int64)
    found, stored = filled(durations_ns, capacity=1000).figures(), figures(durations_ns[:1000] / 1e3)
    for name in ("mean", "jitter"):
        ratio = np.log(found[f"{name}_high_us"] / found[f"{name}_us"])
        assert ratio == pytest.approx(np.log(stored[f"{name}_high_us"] / stored[f"{name}_us"]) / 2)  # √(1000 / 4000)
        assert found[f"{name}_low_us"] < found[f"{name}_us"] < found[f"{name}_high_us"]


def test_recording_takes_no_memory():
    recorder = Recorder(1000)
    record = recorder.record
    record(10**12, 10**12 + 5)
    tracemalloc.start()
    for turn in range(10**12, 10**12 + 1500):  # beyond what is stored, too
        record(turn, turn + 1234567)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert recorder.count == 1501
    assert grown < 1000  # the sums' last digits


def test_without_room_everything_is_counted():
    recorder = filled([2000, 3000], capacity=0)
    assert (recorder.stored_count, recorder.latencies_us.size, recorder.histogram().count) == (0, 0, 2)


def test_the_default_holds_a_million_runs():
    assert CAPACITY == 2**20
    assert Recorder().capacity == CAPACITY


def test_percentiles_know_of_every_run():
    recorder = filled([10**6] * 2995, capacity=100)
    assert percentile(recorder.latencies_us, 0.999).high is None
    assert recorder.figures()["p99_9_high_us"] == 1000
