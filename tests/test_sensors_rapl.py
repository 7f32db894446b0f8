"""pyRAPL as the reader of what it reads rightly: against a fake at its boundary, and for real in a private /sys."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from common.errors import PipelineError
from common.sensors.powercap import Zone
from common.sensors.rapl import import_quietly, pyrapl_sensors

ROOT = Path(__file__).resolve().parent.parent
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
    assert [sensor.sample() for sensor in sensors] == [None] * 3
    fake.counters_uj |= {(0, 0): 100.0, (0, 1): 211.0 + 17.0, (1, 0): 307.0 + 29.0}
    now_s[0] = 1e-3
    watts = [sensor.sample().power_w for sensor in sensors]
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
    assert notes[0].endswith("the powercap reader stands in")


def test_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyRAPL", None)
    assert pyrapl_sensors(ZONES, lambda: 0.0) == ([], ["pyRAPL: not installed; the powercap reader stands in"])


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


PRIVATE_SYS = """
set -e
mount -t tmpfs none /sys/class
zone() { mkdir -p "$1"; echo "$2" > "$1/name"; echo "$3" > "$1/max_energy_range_uj"; echo "$4" > "$1/energy_uj"; }
P=/sys/class/powercap/intel-rapl
zone $P/intel-rapl:0 package-0 262143328850 262143328000
zone $P/intel-rapl:0/intel-rapl:0:0 core 262143328850 5
zone $P/intel-rapl:0/intel-rapl:0:1 dram 65712999613 1000
zone $P/intel-rapl:1 psys 262143328850 7
exec "$0" -c '
from common.sensors.discover import available_sensors
now = [0.0]
sensors, _ = available_sensors(clock=lambda: now[0])
sensors = [sensor for sensor in sensors if not sensor.name.startswith("nvml")]
for sensor in sensors:
    sensor.sample()
zone = "/sys/class/powercap/intel-rapl/intel-rapl:0"
open(zone + "/energy_uj", "w").write("150")
open(zone + "/intel-rapl:0:1/energy_uj", "w").write("3000")
now[0] = 1e-3
for sensor in sensors:
    print(sensor.name, sensor.domain, round(sensor.sample().power_w * 1e3))
'
"""


def test_the_real_pyrapl_reads_a_whole_tree_over_a_wrap():
    """A mount namespace of its own, with a fake /sys/class, is the only way to show pyRAPL another tree."""
    sockets = {
        path.read_text().strip() for path in Path("/sys/devices/system/cpu").glob("cpu*/topology/physical_package_id")
    }
    if os.geteuid() != 0 or not shutil.which("unshare") or sockets != {"0"}:
        pytest.skip("needs root, unshare(1) and a host of one socket")
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/sys/class"]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this host lets no one mount in a namespace")
    command = ["unshare", "-m", "bash", "-c", PRIVATE_SYS, sys.executable]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    # package: 850 µJ to the end of its range and 150 after it, in 1 ms; dram: 2000 µJ; psys stands still
    assert ran.stdout.splitlines() == ["pyRAPL package-0 1000", "pyRAPL package-0/dram 2000", "powercap psys 0"]
