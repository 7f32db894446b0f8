"""Counters, the powercap reader and the choice of sensors, against fake trees and an injected clock."""

import os
from collections import Counter
from pathlib import Path

import pytest

from common.messages.errors import PipelineError
from common.sensors import discover
from common.sensors.powercap import find_zones, powercap_sensors
from common.sensors.sampler import Sampler
from common.sensors.sensor import CounterSensor, GaugeSensor, Sample, count_between

PACKAGE_RANGE_UJ = 262_143_328_850
DRAM_RANGE_UJ = 65_712_999_613


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def add_zone(folder: Path, label: str, energy_uj: int, range_uj: int = PACKAGE_RANGE_UJ) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder


def nested_tree(root: Path) -> Path:
    """One socket as in /sys/devices: package with core and dram, and psys beside it; the mmio twin of the package."""
    control = root / "intel-rapl"
    package = add_zone(control / "intel-rapl:0", "package-0", 1009)
    add_zone(package / "intel-rapl:0:0", "core", 499)
    add_zone(package / "intel-rapl:0:1", "dram", 251, DRAM_RANGE_UJ)
    add_zone(control / "intel-rapl:1", "psys", 2003)
    add_zone(root / "intel-rapl-mmio" / "intel-rapl-mmio:0", "package-0", 1013)
    return root


# --- the counter ----------------------------------------------------------------------------------------------------


def test_a_counter_gives_the_difference_and_a_wrap_exactly():
    assert count_between(1009, 1013, PACKAGE_RANGE_UJ) == 4
    before = PACKAGE_RANGE_UJ - 101
    assert count_between(before, 53, PACKAGE_RANGE_UJ) == 101 + 53
    assert count_between(DRAM_RANGE_UJ - 7, 11, DRAM_RANGE_UJ) == 7 + 11
    assert count_between(1013, 1009, None) == -4


def test_power_is_energy_over_the_time_since_the_last_reading():
    clock, readings = Clock(), iter([1_000_003, 8_000_003])
    sensor = CounterSensor("fake", "package-0", lambda: next(readings), range_count=PACKAGE_RANGE_UJ, clock=clock)
    assert list(sensor.sample()) == []  # the first reading only starts the counting
    clock.now_s = 0.5
    (sample,) = sensor.sample()
    assert (sample.time_s, sample.sensor, sample.sensor_domain) == (0.5, "fake", "package-0")
    assert sample.value == pytest.approx(7_000_000e-6 / 0.5)


def test_power_over_a_wrap():
    clock, readings = Clock(), iter([PACKAGE_RANGE_UJ - 2_000_003, 3_000_017])
    sensor = CounterSensor("fake", "package-0", lambda: next(readings), range_count=PACKAGE_RANGE_UJ, clock=clock)
    sensor.sample()
    clock.now_s = 1.0
    assert sensor.sample()[0].value == pytest.approx(5.00002)  # 2.000003 J + 3.000017 J in 1 s


@pytest.mark.parametrize("range_uj", [None, PACKAGE_RANGE_UJ])
def test_a_counter_that_was_reset_is_an_error_and_the_next_reading_counts_again(range_uj):
    clock, readings = Clock(), iter([90_000_000_000, 17, 1_000_017])
    sensor = CounterSensor("fake", "gpu-0", lambda: next(readings), range_count=range_uj, clock=clock)
    sensor.sample()
    clock.now_s = 0.1
    with pytest.raises(PipelineError, match="fake gpu-0: the counter was reset between two readings"):
        sensor.sample()
    clock.now_s = 0.6
    assert sensor.sample()[0].value == pytest.approx(2.0)  # 1 J in 0.5 s


def test_a_clock_that_has_not_moved_gives_no_sample_and_loses_no_energy():
    clock, readings = Clock(), iter([5, 1_000_005, 3_000_005])
    sensor = CounterSensor("fake", "psys", lambda: next(readings), clock=clock)
    sensor.sample()
    assert list(sensor.sample()) == []
    clock.now_s = 1.0
    assert sensor.sample()[0].value == pytest.approx(3.0)


def test_a_failed_reading_leaves_its_energy_to_the_next_sample():
    clock, readings = Clock(), iter([0, None, 6_000_000])

    def read_uj():
        value = next(readings)
        if value is None:
            raise PipelineError("fake", "gone")
        return value

    sensor = CounterSensor("fake", "package-0", read_uj, clock=clock)
    sensor.sample()
    clock.now_s = 1.0
    with pytest.raises(PipelineError):
        sensor.sample()
    clock.now_s = 2.0
    assert sensor.sample()[0].value == pytest.approx(3.0)  # 6 J over both seconds


def test_a_gauge_gives_what_it_shows():
    clock = Clock()
    clock.now_s = 7.0
    sensor = GaugeSensor("nvml", "gpu-1", ("temperature_c", "sm_clock_mhz"), lambda: (61.0, 1709.0), clock=clock)
    assert sensor.sample() == [
        Sample(7.0, "nvml", "gpu-1", "temperature_c", 61.0),
        Sample(7.0, "nvml", "gpu-1", "sm_clock_mhz", 1709.0),
    ]


def test_a_clock_that_goes_backwards_is_an_error_and_the_counting_starts_anew():
    clock, readings = Clock(), iter([0, 5_000_000, 8_000_000])
    sensor = CounterSensor("fake", "psys", lambda: next(readings), clock=clock)
    clock.now_s = 10.0
    sensor.sample()
    clock.now_s = 4.0
    with pytest.raises(PipelineError, match="fake psys: the clock went backwards"):
        sensor.sample()
    clock.now_s = 4.5
    assert sensor.sample()[0].value == pytest.approx(6.0)  # 3 J in half a second of the new time


def test_a_restarted_counter_gives_nothing_of_the_time_before():
    clock, readings = Clock(), iter([0, 900_000_000, 901_000_000])
    sensor = CounterSensor("fake", "psys", lambda: next(readings), clock=clock)
    sensor.sample()
    sensor.restart()
    clock.now_s = 100.0
    assert list(sensor.sample()) == []
    clock.now_s = 101.0
    assert sensor.sample()[0].value == pytest.approx(1.0)


def test_a_rate_of_another_unit():
    clock, readings = Clock(), iter([7, 7 + 350])
    sensor = CounterSensor("getrusage", "process", lambda: next(readings), clock=clock, quantity="x_per_s", unit=1.0)
    sensor.sample()
    clock.now_s = 0.5
    assert sensor.sample() == (Sample(0.5, "getrusage", "process", "x_per_s", 700.0),)


# --- the tree -------------------------------------------------------------------------------------------------------


def test_zones_are_packages_their_dram_and_psys_each_with_its_own_range(tmp_path):
    zones = {zone.domain: zone.range_uj for zone in find_zones(nested_tree(tmp_path))}
    assert zones == {"package-0": PACKAGE_RANGE_UJ, "package-0/dram": DRAM_RANGE_UJ, "psys": PACKAGE_RANGE_UJ}


def test_a_flat_tree_of_links_gives_each_zone_once(tmp_path):
    """/sys/class/powercap holds links to every zone beside the control type that holds the zones themselves."""
    devices, flat = nested_tree(tmp_path / "devices"), tmp_path / "class"
    flat.mkdir()
    control = devices / "intel-rapl"
    for folder in [control, *control.glob("intel-rapl:*"), *control.glob("*/intel-rapl:*")]:
        (flat / folder.name).symlink_to(folder)
    assert [zone.domain for zone in find_zones(flat)] == ["package-0", "package-0/dram", "psys"]


def test_a_package_of_two_dies_and_a_second_socket_without_dram(tmp_path):
    add_zone(tmp_path / "intel-rapl:0", "package-0-die-0", 3)
    add_zone(tmp_path / "intel-rapl:1", "package-0-die-1", 5)
    add_zone(tmp_path / "intel-rapl:1:0", "dram", 7, DRAM_RANGE_UJ)
    add_zone(tmp_path / "intel-rapl:2", "package-1", 11)
    domains = [zone.domain for zone in find_zones(tmp_path)]
    assert domains == ["package-0-die-0", "package-0-die-1", "package-0-die-1/dram", "package-1"]


def test_amd_uses_the_same_names(tmp_path):
    package = add_zone(tmp_path / "intel-rapl:0", "package-0", 13)
    add_zone(package / "intel-rapl:0:0", "core", 5)
    assert [zone.domain for zone in find_zones(tmp_path)] == ["package-0"]


def test_a_zone_of_another_kind_and_an_orphan_are_left_alone(tmp_path):
    add_zone(tmp_path / "intel-rapl:0", "something-new", 13)
    add_zone(tmp_path / "intel-rapl:5:0", "dram", 5)
    assert find_zones(tmp_path) == ()


def test_sensors_read_the_tree(tmp_path):
    root, clock = nested_tree(tmp_path), Clock()
    sensors, notes = powercap_sensors(find_zones(root), clock)
    for sensor in sensors:
        sensor.sample()
    add_zone(root / "intel-rapl" / "intel-rapl:0", "package-0", 1009 + 23_000_000)
    add_zone(root / "intel-rapl" / "intel-rapl:1", "psys", 2003 + 31_000_000)
    clock.now_s = 0.5
    watts = {sensor.domain: sensor.sample()[0].value for sensor in sensors}
    assert notes == []
    assert watts == pytest.approx({"package-0": 46.0, "package-0/dram": 0.0, "psys": 62.0})


def test_a_counter_that_is_no_number_and_one_that_is_gone(tmp_path):
    zone = find_zones(nested_tree(tmp_path))[0]
    (sensor,), _ = powercap_sensors([zone], Clock())
    (zone.path / "energy_uj").write_text("-1\n")
    with pytest.raises(PipelineError, match="holds '-1', which is not a count"):
        sensor.sample()
    (zone.path / "energy_uj").unlink()
    with pytest.raises(PipelineError, match=r"energy_uj: cannot be read \(No such file"):
        sensor.sample()


def test_a_zone_that_goes_in_mid_run_leaves_what_was_measured(tmp_path):
    """Through the sampler: the package disappears, psys goes on, and the line says which is incomplete."""
    sensors, _ = powercap_sensors(find_zones(nested_tree(tmp_path)), clock := Clock())
    rounds = iter([False, False, True])

    def wait(seconds):
        clock.now_s += seconds
        if clock.now_s > 0.15:
            (tmp_path / "intel-rapl" / "intel-rapl:0" / "energy_uj").unlink(missing_ok=True)
        return next(rounds)

    with Sampler(sensors, samples := [], 10.0, clock=clock, wait=wait) as sampler:
        sampler._thread.join()
    counts = Counter(sample.sensor_domain for sample in samples)
    assert counts == {"package-0": 1, "package-0/dram": 3, "psys": 3}
    (line,) = sampler.incomplete
    assert line.startswith("powercap package-0: 2 readings failed")


@pytest.fixture
def closed_counters(monkeypatch):
    """Counters as Linux leaves them since 2020: readable by root only (this test may itself be root)."""
    real = os.open

    def refuse(path, *rest, **more):
        if str(path).endswith("energy_uj") and "max_energy" not in str(path):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)


def test_counters_closed_to_the_user_give_one_note_with_the_remedy(tmp_path, closed_counters):
    sensors, notes = powercap_sensors(find_zones(nested_tree(tmp_path)), Clock())
    assert sensors == []
    assert len(notes) == 1
    assert "is readable by root only; run as root, or: sudo chmod a+r" in notes[0]
    assert notes[0].endswith("(and 2 more)")


# --- the choice -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(discover, "nvml_sensors", lambda clock: ([], ["nvml: no GPU power"]))
    monkeypatch.setattr(discover, "cpu_sensors", lambda clock: ([], []))


def test_another_root_is_read_by_powercap_alone(tmp_path, no_gpu, monkeypatch):
    monkeypatch.setattr(discover, "pyrapl_sensors", lambda *_: pytest.fail("pyRAPL cannot read another tree"))
    sensors, notes = discover.available_sensors(nested_tree(tmp_path))
    assert {(sensor.name, sensor.domain) for sensor in sensors} == {
        ("powercap", "package-0"),
        ("powercap", "package-0/dram"),
        ("powercap", "psys"),
    }
    assert notes == [
        f"pyRAPL: cannot read {tmp_path}",
        "powercap: reads package-0, package-0/dram, psys",
        "nvml: no GPU power",
    ]


def test_pyrapl_reads_first_and_powercap_the_rest(tmp_path, no_gpu, monkeypatch):
    root = nested_tree(tmp_path)
    monkeypatch.setattr(discover, "DEFAULT_ROOT", root)
    mine = CounterSensor("pyRAPL", "package-0", lambda: 0)
    monkeypatch.setattr(discover, "pyrapl_sensors", lambda zones, clock: ([mine], ["a note"]))
    sensors, notes = discover.available_sensors(root)
    assert sorted((sensor.domain, sensor.name) for sensor in sensors) == [
        ("package-0", "pyRAPL"),
        ("package-0/dram", "powercap"),
        ("psys", "powercap"),
    ]
    assert notes[:2] == [
        "a note",
        "pyRAPL: reads package-0; powercap reads package-0/dram, psys, which pyRAPL does not give",
    ]


def test_a_host_without_sensors_says_so_with_the_way_out(tmp_path, no_gpu):
    sensors, notes = discover.available_sensors(tmp_path / "absent")
    assert sensors == []
    assert any("no RAPL counters under" in note for note in notes)
    assert notes[-1].endswith("give <avg_power_w>, or an energy model predicts the energy")


def test_a_broken_tree_is_a_note(tmp_path, no_gpu):
    (nested_tree(tmp_path) / "intel-rapl" / "intel-rapl:0" / "max_energy_range_uj").unlink()
    sensors, notes = discover.available_sensors(tmp_path)
    assert sensors == []
    assert "max_energy_range_uj: cannot be read" in notes[0]
