"""The processor's sensors: against the kernel's own files, and where a host hides what it does."""

import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from common.messages.errors import PipelineError
from common.sensors import cpu
from common.sensors.cpu import HostUtilization, cpu_sensors, process_state
from common.sensors.quantities import QUANTITIES

Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")
Frequency = namedtuple("Frequency", "current min max")


def readings(monkeypatch, name, *values):
    """psutil's answers in turn, the last of them for ever; an exception is raised."""
    rest = list(values)

    def answer(*_):
        value = rest.pop(0) if len(rest) > 1 else rest[0]
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(psutil, name, answer)


def find(quantity, domain, clock=lambda: 0.0):
    sensors, _ = cpu_sensors(clock)
    (sensor,) = (each for each in sensors if quantity in each.quantities and each.domain == domain)
    return sensor


def test_the_busy_share_is_all_but_idle_and_waiting_and_counts_guests_once(monkeypatch):
    before = Times(10.0, 1.0, 2.0, 100.0, 5.0, 0.0, 0.0, 0.0, 3.0, 0.0)
    after = Times(10.0 + 7, 1.0, 2.0 + 4, 100.0 + 11, 5.0 + 2, 0.0, 0.0, 0.0 + 1, 3.0 + 5, 0.0)
    readings(monkeypatch, "cpu_times", before, after)
    sensor = HostUtilization(lambda: 3.0)
    assert list(sensor.sample()) == []
    ((time_s, name, domain, quantity, value),) = sensor.sample()
    assert (time_s, name, domain, quantity) == (3.0, "psutil", "host", "cpu_utilization_share")
    # user 7 (5 of them the guests', which are listed again), system 4, idle 11, waiting 2, stolen 1
    assert value == pytest.approx((7 + 4 + 1) / (7 + 4 + 11 + 2 + 1))


def test_an_idle_time_that_steps_back_counts_as_none(monkeypatch):
    base = Times(10.0, 0.0, 0.0, 100.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    readings(monkeypatch, "cpu_times", base, base._replace(user=13.0, idle=107.0, iowait=4.98))
    sensor = HostUtilization(lambda: 3.0)
    sensor.sample()
    assert sensor.sample()[0].value == pytest.approx(3 / 10)


def test_times_that_have_not_moved_give_no_share(monkeypatch):
    base = Times(10.0, 0.0, 0.0, 100.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    readings(monkeypatch, "cpu_times", base, base, base._replace(user=11.0, idle=103.0))
    sensor = HostUtilization(lambda: 3.0)
    sensor.sample()
    assert list(sensor.sample()) == []
    assert sensor.sample()[0].value == pytest.approx(1 / 4)
    sensor.restart()
    assert list(sensor.sample()) == []


def test_what_a_container_hides_is_a_note_and_no_zero(monkeypatch):
    readings(monkeypatch, "cpu_times", Times(*[0.0] * 10))
    readings(monkeypatch, "cpu_stats", namedtuple("Stats", "ctx_switches")(0))
    readings(monkeypatch, "cpu_freq", None)
    sensors, notes = cpu_sensors(lambda: 0.0)
    host = {quantity for sensor in sensors if sensor.domain == "host" for quantity in sensor.quantities}
    assert host == {"memory_available_bytes"}
    assert [note.partition(";")[0] for note in notes] == [
        "psutil: no processor times of the host",
        "psutil: no context switches of the host",
        "psutil: no processor frequency (a container or a virtual machine hides it)",
    ]


@pytest.mark.parametrize("frequency", [None, Frequency(2600.0, 0.0, 0.0), Frequency(0.0, 800.0, 3600.0)])
def test_a_nominal_frequency_is_no_measurement(monkeypatch, frequency):
    readings(monkeypatch, "cpu_freq", frequency)
    sensors, notes = cpu_sensors(lambda: 0.0)
    assert not [sensor for sensor in sensors if "cpu_frequency_mhz" in sensor.quantities]
    assert notes[-1].endswith("the nominal one is no measurement")


def test_a_frequency_that_the_kernel_scales(monkeypatch):
    readings(monkeypatch, "cpu_freq", Frequency(2100.0, 800.0, 3600.0), Frequency(3511.0, 800.0, 3600.0), None)
    sensor = find("cpu_frequency_mhz", "host")
    assert sensor.sample()[0].value == 3511.0
    with pytest.raises(PipelineError, match="no longer gives the frequency"):
        sensor.sample()


@pytest.mark.parametrize("error", [OSError("no /proc"), psutil.AccessDenied(), NotImplementedError("not here")])
def test_a_reading_that_fails_in_mid_run_is_an_error_of_our_type(monkeypatch, error):
    sensor = find("memory_available_bytes", "host")
    readings(monkeypatch, "virtual_memory", error)
    with pytest.raises(PipelineError, match="psutil: cannot be read"):
        sensor.sample()


def test_memory_against_the_kernels_own_files():
    available = find("memory_available_bytes", "host").sample()[0].value
    resident = find("memory_resident_bytes", "process").sample()[0].value
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert 0 < available < 1024 * int(meminfo["MemTotal"].split()[0])
    assert resident == pytest.approx(1024 * int(status["VmRSS"].split()[0]), rel=0.1)


def test_the_process_time_is_a_share_of_all_processors(monkeypatch):
    now_s, used_ns = [0.0], [0]
    monkeypatch.setattr(cpu.time, "process_time_ns", lambda: used_ns[0])
    monkeypatch.setattr(cpu.os, "cpu_count", lambda: 7)
    sensor = find("cpu_utilization_share", "process", lambda: now_s[0])
    sensor.sample()
    now_s[0], used_ns[0] = 2.0, 3_000_000_000
    assert sensor.sample()[0].value == pytest.approx(3 / (2 * 7))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_switches_of_every_thread_are_counted_and_not_only_those_of_the_main_one():
    """A thread that waits 50 times; psutil, which reads the main thread's count, misses them."""
    now_s = [0.0]
    sensor = find("voluntary_context_switches_per_s", "process", lambda: now_s[0])
    pause, ran = threading.Event(), []

    def wait_often():
        for _ in range(50):
            pause.wait(1e-4)
        ran.append(True)

    sensor.sample()
    before = psutil.Process().num_ctx_switches().voluntary
    thread = threading.Thread(target=wait_often)
    thread.start()
    thread.join()
    main_only = psutil.Process().num_ctx_switches().voluntary - before
    now_s[0] = 1.0
    assert ran
    assert sensor.sample()[0].value >= 50 > main_only


def test_windows_counts_switches_by_psutil(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    counts = namedtuple("Counts", "voluntary involuntary")(11, 5)
    monkeypatch.setattr(psutil.Process, "num_ctx_switches", lambda self: counts)
    name, voluntary, involuntary = cpu._switch_counters()
    assert (name, voluntary(), involuntary()) == ("psutil", 11, 5)


def test_every_quantity_is_declared(monkeypatch):
    readings(monkeypatch, "cpu_freq", Frequency(2100.0, 800.0, 3600.0))
    sensors, _ = cpu_sensors(lambda: 0.0)
    assert {quantity for sensor in sensors for quantity in sensor.quantities} <= set(QUANTITIES)
    assert {sensor.domain for sensor in sensors} == {"host", "process"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_state_of_the_process_is_what_linux_says(tmp_path):
    sensor = process_state(time.perf_counter)

    def state():
        return {sample.quantity: sample.value for sample in sensor.sample()}

    before = state()
    with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
        within = state()
    assert within["handle_count"] == before["handle_count"] + 2
    assert before["thread_count"] == len([*Path("/proc/self/task").iterdir()])
    assert before["memory_resident_bytes"] > 10e6
