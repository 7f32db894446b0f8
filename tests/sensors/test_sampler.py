"""The sampler's deadlines and its faults, on a clock that only the test moves."""

from collections import deque
from itertools import pairwise

import pytest

from benchmarks.measuring import sampler_cost
from common.messages.errors import PipelineError
from common.sensors.quantities import QUANTITIES
from common.sensors.sampler import IDLE, RUN, Sampler, next_deadline, sample_idle
from common.sensors.sensor import CounterSensor, GaugeSensor
from tests.support.paths import ROOT

NOT_RUNNING = "the process was suspended or stopped, or the clock was set forward"


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


def sampled(time, *sensors, rate_hz=10.0, phase=RUN):
    samples = []
    with Sampler(sensors, samples, rate_hz, phase=phase, clock=time.clock, wait=time.wait) as sampler:
        sampler._thread.join()  # the fake wait ends it after its rounds
    return sampler, samples


def gauge(time, read=lambda: 3.0, domain="psys"):
    return GaugeSensor("fake", domain, ("power_w",), lambda: (read(),), clock=time.clock)


def test_deadlines_are_absolute_whatever_a_reading_takes():
    time = FakeTime(rounds=5, busy_s=[0.03] * 5)
    sampler, samples = sampled(time, gauge(time))
    assert time.woken_s == pytest.approx([100.1, 100.2, 100.3, 100.4, 100.5])  # a sleep of 0.1 would end at 100.62
    assert len(samples) == 1 + 5 + 1  # at the start of the block, at each deadline, at its end
    assert sampler.missed_count == 0
    assert sampler.notes == []


def test_missed_deadlines_are_skipped_and_counted_not_caught_up():
    time = FakeTime(rounds=3, busy_s=[0.25, 0.0, 0.0])
    sampler, _ = sampled(time, gauge(time))
    assert time.woken_s == pytest.approx([100.1, 100.4, 100.5])
    assert sampler.missed_count == 2
    assert sampler.notes == ["sensors: 2 sample times were missed; the host was busy"]


@pytest.mark.parametrize(
    ("now_s", "done", "expected"), [(0.0, 0, 1), (0.05, 0, 1), (0.0999, 1, 2), (0.2, 1, 2), (0.21, 1, 3), (0.97, 2, 10)]
)
def test_the_next_deadline_is_neither_past_nor_done(now_s, done, expected):
    assert next_deadline(0.0, 0.1, now_s, done) == expected


def test_energy_over_the_whole_block_is_kept():
    """A counter at 7 W: whatever the rounds, the samples add up to 7 W times the time of the block."""
    time = FakeTime(rounds=4, busy_s=[0.31, 0.0, 0.07])
    counter = CounterSensor("fake", "package-0", lambda: round(7e6 * time.now_s), clock=time.clock)
    _, samples = sampled(time, counter)
    times_s = [100.0, *(sample.time_s for sample in samples)]
    steps_s = [after - before for before, after in pairwise(times_s)]
    joules = sum(step * sample.value for step, sample in zip(steps_s, samples, strict=True))
    assert joules == pytest.approx(7.0 * (times_s[-1] - 100.0), abs=1e-6)


def test_a_sensor_that_disappears_leaves_what_it_gave_and_a_note():
    time = FakeTime(rounds=4)

    def read_w():
        if len(time.woken_s) >= 3:
            raise PipelineError("fake psys", "gone")
        return 5.0

    sampler, samples = sampled(time, gauge(time, read_w), gauge(time, domain="gpu-0"))
    assert [sample.value for sample in samples if sample.sensor_domain == "psys"] == [5.0] * 3
    assert len([sample for sample in samples if sample.sensor_domain == "gpu-0"]) == 6
    assert sampler.incomplete == ["fake psys: 3 readings failed (fake psys: gone); the run samples have a hole"]
    assert sampler.notes == sampler.incomplete


def test_a_counter_that_is_reset_in_mid_run_keeps_what_came_before_and_after():
    time = FakeTime(rounds=6)
    counts_uj = iter([9_000_000, 9_500_000, 10_000_000, 40, 500_040, 1_000_040, 1_000_040, 1_000_040])
    counter = CounterSensor("fake", "package-0", lambda: next(counts_uj), clock=time.clock)
    sampler, samples = sampled(time, counter)
    # 0.5 J in each 0.1 s; none at the reset; the last two readings stand still
    assert [sample.value for sample in samples] == pytest.approx([5, 5, 5, 5, 0], abs=1e-9)
    (line,) = sampler.incomplete
    assert line.startswith("fake package-0: 1 readings failed (fake package-0: the counter was reset")


def test_a_clock_that_goes_back_does_not_stop_the_sampler():
    time = FakeTime(rounds=6, busy_s=[0.0, 0.0, -3600.0, 0.0, 0.0, 0.0])
    sampler, samples = sampled(time, gauge(time))
    assert time.woken_s == pytest.approx([100.1, 100.2, 100.3, -3499.6, -3499.5, -3499.4])
    assert len(samples) == 1 + 6 + 1
    assert sampler.incomplete == ["sensors: the clock went back by 3599.9 s; run samples overlap"]


def test_a_gap_of_the_clock_is_told_and_not_caught_up():
    time = FakeTime(rounds=4, busy_s=[0.0, 7.03, 0.0, 0.0])
    sampler, samples = sampled(time, gauge(time))
    assert time.woken_s == pytest.approx([100.1, 100.2, 107.3, 107.4])
    assert len(samples) == 1 + 4 + 1
    assert sampler.incomplete == [f"sensors: nothing was read for 7.1 s; {NOT_RUNNING}"]


def test_a_gap_at_the_end_is_told():
    time = FakeTime(rounds=1, busy_s=[5.0])
    sampler, _ = sampled(time, gauge(time))
    assert sampler.incomplete == [f"sensors: nothing was read for 5.1 s; {NOT_RUNNING}"]


def test_a_sensor_with_a_period_of_its_own_is_read_no_more_often():
    time = FakeTime(rounds=10)
    slow = GaugeSensor("fake", "gpu-0", ("temperature_c",), lambda: (47.0,), clock=time.clock, period_s=0.3)
    _, samples = sampled(time, gauge(time), slow)
    times_s = [sample.time_s for sample in samples if sample.sensor_domain == "gpu-0"]
    # at the start, then at every third deadline, and at the end
    assert times_s == pytest.approx([100.0, 100.1, 100.4, 100.7, 101.0, 101.0])
    assert len([sample for sample in samples if sample.sensor_domain == "psys"]) == 12


def test_the_same_sensors_serve_an_idle_phase_and_then_the_run(monkeypatch):
    """The pause between the phases, in which the model is loaded, belongs to neither."""
    time = FakeTime(rounds=2)
    counter = CounterSensor("fake", "package-0", lambda: round(7e6 * time.now_s), clock=time.clock)
    idle, idle_samples = sampled(time, counter, phase=IDLE)
    time.now_s, time.rounds = 500.0, 4
    run, run_samples = sampled(time, counter)
    assert (idle.phase, run.phase) == ("idle", "run")
    assert [sample.time_s for sample in idle_samples] == pytest.approx([100.1, 100.2])
    assert [sample.time_s for sample in run_samples] == pytest.approx([500.1, 500.2])


def test_idle_sampling_waits_only_where_power_is_measured(monkeypatch):
    slept_s = []
    monkeypatch.setattr("common.sensors.sampler.time.sleep", slept_s.append)
    without, idle = [], []
    sampler = sample_idle([GaugeSensor("psutil", "host", ("memory_available_bytes",), lambda: (2.0,))], without, 3.0)
    assert (slept_s, without, sampler.phase) == ([], [], "idle")
    sample_idle([GaugeSensor("fake", "psys", ("power_w",), lambda: (2.0,))], idle, 3.0)
    assert slept_s == [3.0]
    assert len(idle) >= 2


def test_without_sensors_nothing_is_started():
    sampler = Sampler([], samples := [])
    with sampler:
        assert not sampler._thread.is_alive()
    assert (samples, sampler.notes) == ([], [])


def test_the_real_clock_and_the_real_wait_end_with_the_block():
    """However short the block, its start and its end are sampled, and the thread is gone."""
    with Sampler([GaugeSensor("fake", "psys", ("power_w",), lambda: (2.0,))], samples := [], rate_hz=50.0) as sampler:
        pass
    assert len(samples) >= 2
    assert not sampler._thread.is_alive()


def test_an_error_in_the_block_still_ends_the_thread():
    sampler = Sampler([GaugeSensor("fake", "psys", ("power_w",), lambda: (2.0,))], samples := [])
    with pytest.raises(RuntimeError, match="in the block"), sampler:
        raise RuntimeError("in the block")
    assert not sampler._thread.is_alive()
    assert samples


def test_hours_of_faults_take_no_more_memory_than_minutes():
    """A sensor that always fails and a clock that jumps in every round, into a ring."""
    time = FakeTime(rounds=3000, busy_s=[7.0] * 3000)

    def fail():
        raise PipelineError("fake psys", f"gone at {time.now_s}")

    ring = deque(maxlen=50)
    with Sampler([gauge(time), gauge(time, fail, "gpu-0")], ring, 10.0, clock=time.clock, wait=time.wait) as sampler:
        sampler._thread.join()
    assert len(ring) == 50
    assert sampler.incomplete[0].startswith("fake gpu-0: 3002 readings failed (fake psys: gone at 2")
    assert len(sampler.incomplete) == 1 + 100 + 1
    assert sampler.incomplete[-1] == "sensors: 2900 more jumps of the clock"


def test_the_cost_is_measured_for_every_set_of_sensors(capsys):
    sampler_cost.main(["--seconds", "0.03"])
    rows = {line[:14].strip(): line[14:].split() for line in capsys.readouterr().out.splitlines()[1:-1]}
    assert list(rows) == ["thread alone", "powercap", "processor", "nvml", "all"]
    assert [int(row[0]) for row in rows.values()][1] == 5  # two sockets, their memory, psys
    assert all(float(row[-1].rstrip("%")) > 0 for row in rows.values())  # the thread's time was taken


def test_every_quantity_is_in_the_documentation_as_declared():
    text = (ROOT / "docs" / "MEASURING.md").read_text(encoding="utf-8")
    assert [name for name, what in QUANTITIES.items() if f"| `{name}` | {what} |" not in text] == []
