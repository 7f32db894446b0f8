"""NVIDIA sensors against a fake at pynvml's boundary."""

import sys
from types import ModuleType

import pytest

from common.errors import PipelineError
from common.sensors.nvml import nvml_sensors


class NVMLError(Exception):
    pass


class FakePynvml(ModuleType):
    """GPUs as dictionaries: ``energy_mj`` and ``power_mw``, absent where the device does not tell."""

    NVMLError = NVMLError

    def __init__(self, *gpus, has_driver=True):
        super().__init__("pynvml")
        self.gpus = gpus
        self.has_driver = has_driver

    def nvmlInit(self):  # noqa: N802
        if not self.has_driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        return self._tell(handle, "energy_mj")

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return self._tell(handle, "power_mw")

    def _tell(self, handle, key):
        if key not in handle:
            raise NVMLError("Not Supported")
        return handle[key]


def use(monkeypatch, fake):
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_the_energy_counter_comes_first_and_counts_in_millijoules(monkeypatch):
    now_s, gpu = [0.0], {"energy_mj": 10_007, "power_mw": 61_000}
    use(monkeypatch, FakePynvml(gpu))
    (sensor,), notes = nvml_sensors(lambda: now_s[0])
    assert (sensor.name, sensor.domain, notes) == ("nvml_energy", "gpu-0", [])
    assert sensor.sample() is None
    gpu["energy_mj"] += 35_000
    now_s[0] = 0.5
    assert sensor.sample().power_w == pytest.approx(70.0)  # 35 J in half a second


def test_sampled_power_stands_in_where_there_is_no_counter(monkeypatch):
    use(monkeypatch, FakePynvml({"energy_mj": 1}, {"power_mw": 53_017}))
    sensors, _ = nvml_sensors(lambda: 3.0)
    assert [(sensor.name, sensor.domain) for sensor in sensors] == [("nvml_energy", "gpu-0"), ("nvml_power", "gpu-1")]
    assert sensors[1].sample().power_w == pytest.approx(53.017)


def test_a_device_that_tells_nothing_is_a_note_and_no_sensor(monkeypatch):
    use(monkeypatch, FakePynvml({}, {"power_mw": 7000}))
    sensors, notes = nvml_sensors(lambda: 0.0)
    assert [sensor.domain for sensor in sensors] == ["gpu-1"]
    assert notes == ["nvml gpu-0: cannot be read (Not Supported)"]


def test_without_a_driver_there_is_no_sensor_and_never_0_w(monkeypatch):
    use(monkeypatch, FakePynvml({"power_mw": 0}, has_driver=False))
    sensors, notes = nvml_sensors(lambda: 0.0)
    assert sensors == []
    assert notes == [
        "nvml: no GPU power (NVML Shared Library Not Found); where there is an NVIDIA GPU, install its driver"
    ]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_sensors(lambda: 0.0) == ([], ["nvml: not installed; pip install nvidia-ml-py to measure GPUs"])


def test_a_gpu_that_falls_off_the_bus_is_an_error_of_its_own_type(monkeypatch):
    gpu = {"energy_mj": 5}
    use(monkeypatch, FakePynvml(gpu))
    (sensor,), _ = nvml_sensors(lambda: 0.0)
    gpu.clear()
    with pytest.raises(PipelineError, match="nvml gpu-0: cannot be read"):
        sensor.sample()
