"""pyRAPL as the reader of what it reads rightly: against a fake at its boundary, and for real in a private /sys."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import onnx
import pandas as pd
import pytest

from common.messages.errors import PipelineError
from common.sensors.powercap import Zone
from common.sensors.rapl import import_quietly, pyrapl_sensors
from models.__main__ import BUILDERS
from tests.support.paths import ROOT

ZONES = tuple(
    Zone(Path("unused"), domain, 1_000_003)
    for domain in ("package-0", "package-0/dram", "package-1", "package-1/dram", "psys")
)


class PyRAPLException(Exception):  # noqa: N818 - the name is pyRAPL's
    pass


class FakePyRAPL(ModuleType):
    """Two sockets; memory counters on the first only, whatever the tree says."""

    PyRAPLException = PyRAPLException

    class Device:
        PKG = 0
        DRAM = 1

    def __init__(self, setup_error=None):
        super().__init__("pyRAPL")
        self.counters_uj = {(0, 0): 101.0, (0, 1): 211.0, (1, 0): 307.0}
        self.setup_error = setup_error

    def setup(self):
        if self.setup_error:
            raise self.setup_error

    def Sensor(self, devices, socket_ids):  # noqa: N802 - as in pyRAPL
        key = (socket_ids[0], devices[0])
        if key not in self.counters_uj:
            raise PyRAPLException
        fake = self

        class Sensor:
            def energy(self):
                energies = [-1.0, -1.0] * (key[0] + 1)
                energies[2 * key[0] + key[1]] = fake.counters_uj[key]
                return energies

        return Sensor()


def test_each_zone_that_pyrapl_knows_is_read_by_it_and_wraps_at_the_zones_range(monkeypatch):
    fake, now_s = FakePyRAPL(), [0.0]
    monkeypatch.setitem(sys.modules, "pyRAPL", fake)
    sensors, notes = pyrapl_sensors(ZONES, lambda: now_s[0])
    assert notes == []
    assert [(sensor.name, sensor.domain) for sensor in sensors] == [
        ("pyRAPL", "package-0"),
        ("pyRAPL", "package-0/dram"),
        ("pyRAPL", "package-1"),
    ]
    assert [list(sensor.sample()) for sensor in sensors] == [[]] * 3
    fake.counters_uj |= {(0, 0): 100.0, (0, 1): 211.0 + 17.0, (1, 0): 307.0 + 29.0}
    now_s[0] = 1e-3
    watts = [sensor.sample()[0].value for sensor in sensors]
    assert watts == pytest.approx([1_000_002e-3, 17e-3, 29e-3])  # the first went once around: range - 1 µJ


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PyRAPLException(), "PyRAPLException"), (PermissionError(13, "Permission denied"), "Permission denied")],
)
def test_where_it_does_not_initialise_a_note_says_who_stands_in(monkeypatch, error, reason):
    monkeypatch.setitem(sys.modules, "pyRAPL", FakePyRAPL(error))
    sensors, notes = pyrapl_sensors(ZONES, lambda: 0.0)
    assert sensors == []
    assert len(notes) == 1
    assert reason in notes[0]
    assert notes[0].endswith("the powercap reader is used instead")


def test_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyRAPL", None)
    assert pyrapl_sensors(ZONES, lambda: 0.0) == ([], ["pyRAPL: not installed; the powercap reader is used instead"])


def test_a_counter_that_goes_in_mid_run_is_an_error_of_its_own_type(monkeypatch):
    fake = FakePyRAPL()
    monkeypatch.setitem(sys.modules, "pyRAPL", fake)
    package, dram, _ = pyrapl_sensors(ZONES, lambda: 0.0)[0]
    fake.counters_uj[0, 0] = -1.0
    with pytest.raises(PipelineError, match="socket 0 has no such counter"):
        package.sample()
    fake.counters_uj[0, 1] = float("nan")  # int(nan) is a ValueError, as of an empty file
    with pytest.raises(PipelineError, match="socket 0 cannot be read"):
        dram.sample()


def test_the_import_is_silent_and_leaves_logging_as_it_was(capfd, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyRAPL"]:
        monkeypatch.delitem(sys.modules, name)
    handlers, disabled = logging.root.handlers[:], logging.root.manager.disable
    assert import_quietly().__name__ == "pyRAPL"
    assert capfd.readouterr() == ("", "")
    assert (logging.root.handlers, logging.root.manager.disable) == (handlers, disabled)


# A tree that only the processes of one mount namespace see. ``cpus 0 0 1`` gives three processors on two sockets.
PRIVATE_SYS = """
set -e
mount -t tmpfs none /sys/class
mount -t tmpfs none /sys/devices/system/cpu
zone() { mkdir -p "$1"; echo "$2" > "$1/name"; echo "$3" > "$1/max_energy_range_uj"; echo "$4" > "$1/energy_uj"; }
cpus() {
    echo "0-$(($# - 1))" > /sys/devices/system/cpu/present
    for number in $(seq 0 $(($# - 1))); do
        mkdir -p /sys/devices/system/cpu/cpu$number/topology
        echo "$1" > /sys/devices/system/cpu/cpu$number/topology/physical_package_id; shift
    done
}
P=/sys/class/powercap/intel-rapl
"""
# Reads every sensor, lets ``later`` say what the counters show one millisecond on, and prints milliwatts times 1e-3.
READ_TWICE = """
exec "$0" -c '
import sys
from common.sensors.discover import available_sensors
now = [0.0]
sensors, notes = available_sensors(clock=lambda: now[0])
sensors = [sensor for sensor in sensors if "power_w" in sensor.quantities]
for sensor in sensors:
    sensor.sample()
for later in sys.argv[1:]:
    zone, energy_uj = later.split("=")
    open("/sys/class/powercap/intel-rapl/" + zone + "/energy_uj", "w").write(energy_uj)
now[0] = 1e-3
for sensor in sensors:
    print(sensor.name, sensor.domain, round(sensor.sample()[0].value * 1e3))
print(*[note for note in notes if note.startswith(("pyRAPL", "powercap"))], sep="\\n")
' "$@"
"""


@pytest.fixture
def private_sys():
    """Runs a command where /sys is ours: a mount namespace of its own is the only way to show pyRAPL another tree."""
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/sys/class"]
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare(1)")
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this host lets no one mount in a namespace")

    def run(tree, then, *arguments):
        command = ["unshare", "-m", "bash", "-c", PRIVATE_SYS + tree + then, sys.executable, *arguments]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran

    return run


ONE_SOCKET = """
cpus 0 0
zone $P/intel-rapl:0 package-0 262143328850 262143328000
zone $P/intel-rapl:0/intel-rapl:0:0 core 262143328850 5
zone $P/intel-rapl:0/intel-rapl:0:1 dram 65712999613 65712999000
zone $P/intel-rapl:1 psys 262143328850 7
zone /sys/class/powercap/intel-rapl-mmio/intel-rapl-mmio:0 package-0 262143328850 262143328000
"""


@pytest.mark.slow
def test_the_real_pyrapl_reads_a_whole_tree_over_a_wrap_of_each_range(private_sys):
    """Package: 850 µJ to the end of its range and 150 after it, in 1 ms; dram: 613 and 387; psys stands still."""
    ran = private_sys(ONE_SOCKET, READ_TWICE, "intel-rapl:0=150", "intel-rapl:0/intel-rapl:0:1=387")
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "pyRAPL package-0 1000",
        "pyRAPL package-0/dram 1000",
        "powercap psys 0",
        "pyRAPL: reads package-0, package-0/dram; powercap reads psys, which pyRAPL does not give",
    ]


TWO_SOCKETS = """
cpus 0 0 1
zone $P/intel-rapl:0 package-1 262143328850 101
zone $P/intel-rapl:0/intel-rapl:0:0 dram 65712999613 65712999600
zone $P/intel-rapl:1 package-0 262143328850 262143328800
zone $P/intel-rapl:1/intel-rapl:1:0 dram 65712999613 211
"""


@pytest.mark.slow
def test_the_real_pyrapl_on_two_sockets_in_another_order_than_their_zones(private_sys):
    later = [
        "intel-rapl:0=1120",
        "intel-rapl:0/intel-rapl:0:0=16",
        "intel-rapl:1=1979",
        "intel-rapl:1/intel-rapl:1:0=3222",
    ]
    ran = private_sys(TWO_SOCKETS, READ_TWICE, *later)
    assert ran.stdout.splitlines() == [
        "pyRAPL package-1 1019",
        "pyRAPL package-1/dram 29",  # 13 to the end of its range, 16 after it
        "pyRAPL package-0 2029",  # 50 and 1979
        "pyRAPL package-0/dram 3011",
        "pyRAPL: reads package-1, package-1/dram, package-0, package-0/dram",
    ]


TWO_DIES = """
cpus 0 0
zone $P/intel-rapl:0 package-0-die-0 262143328850 3
zone $P/intel-rapl:1 package-0-die-1 262143328850 262143328845
zone $P/intel-rapl:1/intel-rapl:1:0 dram 65712999613 7
"""


@pytest.mark.slow
def test_where_the_real_pyrapl_is_wrong_powercap_reads(private_sys):
    """Two dies are one package to pyRAPL, so it gives up; the note says who reads instead, and why."""
    ran = private_sys(TWO_DIES, READ_TWICE, "intel-rapl:0=26", "intel-rapl:1=12", "intel-rapl:1/intel-rapl:1:0=20")
    assert ran.stdout.splitlines() == [
        "powercap package-0-die-0 23",
        "powercap package-0-die-1 17",
        "powercap package-0-die-1/dram 13",
        "pyRAPL: does not initialise here (PyRAPLCantRecordEnergyConsumption); the powercap reader is used instead",
        "powercap: reads package-0-die-0, package-0-die-1, package-0-die-1/dram",
    ]


@pytest.mark.slow
def test_the_real_pyrapl_beside_a_socket_without_memory_counters(private_sys):
    """It gives up on all memory counters where one socket has none; asked for one socket at a time, it does not."""
    tree = TWO_SOCKETS + "rm -r $P/intel-rapl:1/intel-rapl:1:0\n"
    ran = private_sys(tree, READ_TWICE, "intel-rapl:0/intel-rapl:0:0=16")
    assert ran.stdout.splitlines()[:3] == ["pyRAPL package-1 0", "pyRAPL package-1/dram 29", "pyRAPL package-0 0"]


COUNTING = """
"$0" -c '
import os, time
start = time.perf_counter()
while os.getppid() == int(os.environ["SHELL_PID"]):
    count = int(41e6 * (time.perf_counter() - start)) % 20000003  # 41 W: once around in half a second
    with open("/sys/class/powercap/intel-rapl/intel-rapl:0/energy_uj", "r+") as file:
        file.write("%020d" % count)
    time.sleep(0.002)
' &
while [ "$(cat /sys/class/powercap/intel-rapl/intel-rapl:0/energy_uj)" -eq 0 ]; do sleep 0.01; done
"""
RANGE_J = 20.000003


@pytest.mark.slow
def test_a_whole_run_of_stage_01_over_a_counter_that_wraps(private_sys, tmp_path):
    """Through the real command line: pyRAPL reads a counter at 41 W, which goes around once in the idle phase alone."""
    model = tmp_path / "tiny-cnn.onnx"
    onnx.save(BUILDERS["tiny-cnn"](batch=2), model)
    flags = ["--model", str(model), "--out", str(tmp_path), "--threads", "1", "--sensor-rate-hz", "50", "--all-notes"]
    then = f'export SHELL_PID=$$; {COUNTING}\n"$0" 01_profile_onnx.py "$@" --duration 300ms --idle 700ms; kill %1'
    ran = private_sys(ONE_SOCKET.replace("package-0 262143328850 262143328000", "package-0 20000003 0"), then, *flags)
    samples = pd.read_csv(tmp_path / "power_samples.csv")
    package = samples[samples["sensor_domain"] == "package-0"]
    assert set(package["sensor"]) == {"pyRAPL"}
    assert set(package["phase"]) == {"idle", "run"}
    assert (package["measured_power_w"] >= 0).all()
    # However late a reading comes, it counts less than once around; without the wrap one would be below zero.
    counted_j = package["measured_power_w"] * 1e-6 * package.groupby("phase")["time_us"].diff()
    assert (counted_j.dropna() < RANGE_J + 1e-6).all()
    assert counted_j.count() > 2
    assert (package.groupby("phase")["measured_power_w"].max() > 0).all()
    assert "powercap reads psys" in ran.stderr
