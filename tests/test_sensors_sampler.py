"""The sampler's deadlines and its faults, on a clock that only the test moves."""

from itertools import pairwise

import pytest

from common.errors import PipelineError
from common.sensors.sampler import Sampler, next_deadline
from common.sensors.sensor import CounterSensor, GaugeSensor


class FakeTime:
    """A clock and a wait on it: each wait passes exactly its time, then each reading takes the next of ``busy_s``."""

    def __init__(self, rounds, busy_s=()):
        self.now_s = 100.0
        self.rounds = rounds
        self.busy_s = iter(busy_s)
        self.woken_s = []

    def clock(self):
        return self.now_s

    def wait(self, seconds):
        if len(self.woken_s) == self.rounds:
            return True
        self.now_s += seconds
        self.woken_s.append(self.now_s)
        self.now_s += next(self.busy_s, 0.0)
        return False


def sampled(time, *sensors, rate_hz=10.0):
    with Sampler(sensors, rate_hz, clock=time.clock, wait=time.wait) as sampler:
        sampler._thread.join()  # the fake wait ends it after its rounds
    return sampler


def gauge(time, read=lambda: 3.0, domain="psys"):
    return GaugeSensor("fake", domain, read, clock=time.clock)


def test_deadlines_are_absolute_whatever_a_reading_takes():
    time = FakeTime(rounds=5, busy_s=[0.03] * 5)
    sampler = sampled(time, gauge(time))
    assert time.woken_s == pytest.approx([100.1, 100.2, 100.3, 100.4, 100.5])  # a sleep of 0.1 would end at 100.62
    assert len(sampler.samples) == 1 + 5 + 1  # at the start of the block, at each deadline, at its end
    assert sampler.missed_count == 0
    assert sampler.notes == []


def test_missed_deadlines_are_skipped_and_counted_not_caught_up():
    time = FakeTime(rounds=3, busy_s=[0.25, 0.0, 0.0])
    sampler = sampled(time, gauge(time))
    assert time.woken_s == pytest.approx([100.1, 100.4, 100.5])
    assert sampler.missed_count == 2
    assert sampler.notes == ["power: 2 sample times were missed; the host was busy"]


@pytest.mark.parametrize(
    ("now_s", "done", "expected"), [(0.0, 0, 1), (0.05, 0, 1), (0.0999, 1, 2), (0.2, 1, 2), (0.21, 1, 3), (0.97, 2, 10)]
)
def test_the_next_deadline_is_neither_past_nor_done(now_s, done, expected):
    assert next_deadline(0.0, 0.1, now_s, done) == expected


def test_energy_over_the_whole_block_is_kept():
    """A counter at 7 W: whatever the rounds, the samples add up to 7 W times the time of the block."""
    time = FakeTime(rounds=4, busy_s=[0.31, 0.0, 0.07])
    counter = CounterSensor("fake", "package-0", lambda: round(7e6 * time.now_s), clock=time.clock)
    samples = sampled(time, counter).samples
    times_s = [100.0, *(sample.time_s for sample in samples)]
    steps_s = [after - before for before, after in pairwise(times_s)]
    joules = sum(step * sample.power_w for step, sample in zip(steps_s, samples, strict=True))
    assert joules == pytest.approx(7.0 * (times_s[-1] - 100.0), abs=1e-6)


def test_a_sensor_that_disappears_leaves_what_it_gave_and_a_note():
    time = FakeTime(rounds=4)

    def read_w():
        if len(time.woken_s) >= 3:
            raise PipelineError("fake psys", "gone")
        return 5.0

    sampler = sampled(time, gauge(time, read_w), gauge(time, domain="gpu-0"))
    assert [sample.power_w for sample in sampler.samples if sample.sensor_domain == "psys"] == [5.0] * 3
    assert len([sample for sample in sampler.samples if sample.sensor_domain == "gpu-0"]) == 6
    (note,) = sampler.notes
    assert note.startswith("fake psys: 3 of 6 readings failed (fake psys: gone)")


def test_without_sensors_nothing_is_started():
    sampler = sampled_nothing = Sampler([])
    with sampler:
        assert not sampler._thread.is_alive()
    assert (sampled_nothing.samples, sampled_nothing.notes) == ([], [])


def test_the_real_clock_and_the_real_wait_end_with_the_block():
    """However short the block, its start and its end are sampled, and the thread is gone."""
    with Sampler([GaugeSensor("fake", "psys", lambda: 2.0)], rate_hz=50.0) as sampler:
        pass
    assert len(sampler.samples) >= 2
    assert not sampler._thread.is_alive()


def test_an_error_in_the_block_still_ends_the_thread():
    sampler = Sampler([GaugeSensor("fake", "psys", lambda: 2.0)])
    with pytest.raises(RuntimeError, match="in the block"), sampler:
        raise RuntimeError("in the block")
    assert not sampler._thread.is_alive()
    assert sampler.samples
