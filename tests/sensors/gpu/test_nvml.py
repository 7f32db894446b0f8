"""NVIDIA sensors against a stand-in for NVIDIA's library: the real pynvml, its structs and its errors run over it."""

import gc
import sys
import time

import pynvml
import pytest

from benchmarks.measuring.fake_nvml import FakeGpu, fake_driver, number_of
from common.messages.errors import PipelineError
from common.sensors.gpu import gpm
from common.sensors.gpu.nvml import nvml_sensors
from common.sensors.quantities import QUANTITIES

TX, RX = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
ULL, UINT = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
GPM_SHARES = ["sm_utilization_share", "sm_occupancy_share", "tensor_activity_share", "dram_bandwidth_share"]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(gpm, "SLOW_PERIOD_S", 0.0)  # of the trial of GPM


def named(sensors, name):
    return [sensor for sensor in sensors if sensor.name == name]


def values(sensors):
    """Quantity to value, of a second reading of all."""
    for sensor in sensors:
        sensor.sample()
    return {sample.quantity: sample.value for sensor in sensors for sample in sensor.sample()}


def test_the_energy_counter_comes_first_and_counts_in_millijoules():
    now_s, gpu = [0.0], FakeGpu(energy_mj=10_007)
    with fake_driver(gpu):
        sensors, notes = nvml_sensors(lambda: now_s[0])
        sensor = sensors[0]
        assert (sensor.name, sensor.domain, sensor.quantities, notes) == ("nvml_energy", "gpu-0", ("power_w",), [])
        assert list(sensor.sample()) == []
        gpu.energy_mj += 35_000
        now_s[0] = 0.5
        (sample,) = sensor.sample()
        assert sample.value == pytest.approx(70.0)  # 35 J in half a second
        assert not named(sensors, "nvml_power")  # one figure of power, not two


def test_sampled_power_stands_in_where_there_is_no_counter():
    without = FakeGpu(power_mw=53_017, unsupported={"nvmlDeviceGetTotalEnergyConsumption"})
    with fake_driver(FakeGpu(), without):
        sensors, _ = nvml_sensors(lambda: 3.0)
        powers = [sensor for sensor in sensors if "power_w" in sensor.quantities]
        assert [(sensor.name, sensor.domain) for sensor in powers] == [
            ("nvml_energy", "gpu-0"),
            ("nvml_power", "gpu-1"),
        ]
        assert powers[1].sample()[0].value == pytest.approx(53.017)


def test_a_device_that_tells_no_power_is_a_note_and_never_0_w():
    gpu = FakeGpu(unsupported={"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"})
    with fake_driver(gpu):
        sensors, notes = nvml_sensors(lambda: 0.0)
    assert not [sensor for sensor in sensors if "power_w" in sensor.quantities]
    assert notes == ["nvml gpu-0: cannot be read (Not Supported): left out power_w"]


def test_the_state_of_a_device():
    gpu = FakeGpu(reasons=pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown)
    with fake_driver(gpu):
        sensors, _ = nvml_sensors(lambda: 7.0)
        read = values(named(sensors, "nvml"))
    assert read == {
        "temperature_c": 47,
        "sm_clock_mhz": 1709,
        "memory_clock_mhz": 2617,
        "gpu_utilization_share": 0.71,
        "memory_utilization_share": 0.29,
        "gpu_memory_used_bytes": 1_000_003,
        "is_throttled_by_power_cap": 1,
        "is_throttled_by_temperature": 1,
        "is_throttled_by_power_brake": 0,
        "is_throttled_by_hardware": 0,
        "is_throttled_by_clock_setting": 0,
        "is_throttled_by_sync_boost": 0,
        "is_gpu_idle": 0,
    }


def test_what_a_device_does_not_support_is_left_out_with_one_note():
    gpu = FakeGpu(unsupported={"nvmlDeviceGetTemperature", "nvmlDeviceGetUtilizationRates"})
    with fake_driver(gpu):
        sensors, notes = nvml_sensors(lambda: 7.0)
        read = values(named(sensors, "nvml"))
    assert not {"temperature_c", "gpu_utilization_share", "memory_utilization_share"} & set(read)
    assert read["sm_clock_mhz"] == 1709
    assert notes == [
        "nvml gpu-0: cannot be read (Not Supported): left out temperature_c, gpu_utilization_share, "
        "memory_utilization_share"
    ]


def test_gpm_on_hopper_with_its_own_units_and_no_second_figure_for_pcie():
    with fake_driver(FakeGpu()):
        sensors, _ = nvml_sensors(lambda: 7.0)
        (sensor,) = named(sensors, "nvml_gpm")
        sensor.restart()
        assert list(sensor.sample()) == []  # metrics are those between two samples
        read = {sample.quantity: sample.value for sample in sensor.sample()}
        names = {sensor.name for sensor in sensors}
    assert [read[name] for name in GPM_SHARES] == pytest.approx([0.61, 0.37, 0.23, 0.53])
    assert (read["pcie_tx_bytes_per_s"], read["pcie_rx_bytes_per_s"]) == (3 * 1024**2, 5 * 1024**2)  # from MiB/s
    assert names == {"nvml_energy", "nvml", "nvml_gpm"}


@pytest.mark.slow
def test_gpm_allocates_two_samples_once_and_frees_them_with_the_sensor():
    with fake_driver(FakeGpu()) as library:
        sensors, _ = nvml_sensors(lambda: 7.0)
        for _ in range(5):
            named(sensors, "nvml_gpm")[0].sample()
        assert library.samples_in_use == 2
        del sensors
        for _ in range(1000):  # a collection that another thread has begun makes this one return at once
            gc.collect()
            if not library.samples_in_use:
                break
            time.sleep(0.01)
        assert library.samples_in_use == 0
        assert library.calls.count("nvmlGpmSampleAlloc") == library.calls.count("nvmlGpmSampleFree") == 2


def test_gpm_gives_the_older_sample_first():
    """NVML wants sample1 before sample2; the pair is turned at each reading."""
    taken, pairs = [], []
    with fake_driver(FakeGpu()) as library:
        get, metrics = library._nvmlGpmSampleGet, library._nvmlGpmMetricsGet
        library._nvmlGpmSampleGet = lambda gpu, sample: taken.append(number_of(sample)) or get(gpu, sample)
        library._nvmlGpmMetricsGet = lambda request: (
            pairs.append((number_of(request.sample1), number_of(request.sample2))),
            metrics(request),
        )[1]
        (sensor,) = named(nvml_sensors(lambda: 7.0)[0], "nvml_gpm")
        sensor.sample()
        sensor.sample()
    assert taken in ([1, 2, 1, 2], [2, 1, 2, 1])
    assert pairs == [(taken[0], taken[1]), (taken[1], taken[2]), (taken[2], taken[3])]


def test_a_metric_that_gpm_does_not_give_is_left_out():
    gpu = FakeGpu()
    del gpu.metrics[pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL]
    gpu.metrics[pynvml.NVML_GPM_METRIC_SM_UTIL] = float("nan")
    with fake_driver(gpu):
        sensors, notes = nvml_sensors(lambda: 7.0)
        (sensor,) = named(sensors, "nvml_gpm")
        given = [sample.quantity for sample in sensor.sample()]
    assert given == ["sm_occupancy_share", "dram_bandwidth_share", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"]
    assert sensor.quantities == tuple(given)
    assert notes == ["nvml gpu-0: GPM does not give sm_utilization_share, tensor_activity_share"]


def test_before_hopper_pcie_comes_from_64_bit_counters():
    now_s, gpu = [0.0], FakeGpu(has_gpm=False, fields={TX: (ULL, 1009), RX: (ULL, 2003)})
    with fake_driver(gpu):
        sensors, notes = nvml_sensors(lambda: now_s[0])
        counters = named(sensors, "nvml_pcie_counter")
        for counter in counters:
            counter.restart()
            counter.sample()
        gpu.fields = {TX: (ULL, 1009 + 7_000_000), RX: (ULL, 2003 + 13_000_000)}
        now_s[0] = 0.5
        read = {sample.quantity: sample.value for counter in counters for sample in counter.sample()}
    assert read == {"pcie_tx_bytes_per_s": 14_000_000, "pcie_rx_bytes_per_s": 26_000_000}
    problem = "nvml gpu-0: cannot be read (no GPM; GPUs have it from Hopper on)"
    assert notes == [f"{problem}: left out {', '.join(GPM_SHARES)}"]


@pytest.mark.parametrize("fields", [{}, {TX: (UINT, 1009), RX: (UINT, 2003)}], ids=["none", "32 bits"])
def test_before_hopper_without_such_counters_pcie_is_what_the_driver_samples(fields):
    with fake_driver(FakeGpu(has_gpm=False, fields=fields)):
        sensors, _ = nvml_sensors(lambda: 0.0)
        assert not named(sensors, "nvml_pcie_counter")
        (sampled,) = named(sensors, "nvml_pcie_sampled")
        assert values([sampled]) == {"pcie_tx_bytes_per_s": 7000, "pcie_rx_bytes_per_s": 11000}
        assert sampled.period_s >= 1.0  # each reading takes NVML twice 20 ms


def test_without_any_pcie_figure():
    with fake_driver(FakeGpu(has_gpm=False, unsupported={"nvmlDeviceGetPcieThroughput"})):
        sensors, notes = nvml_sensors(lambda: 0.0)
    assert not [sensor for sensor in sensors if "pcie_tx_bytes_per_s" in sensor.quantities]
    assert notes[-1] == "nvml gpu-0: cannot be read (Not Supported): left out pcie_tx_bytes_per_s, pcie_rx_bytes_per_s"


def test_a_gpu_that_is_lost_in_mid_run_is_an_error_of_our_type_from_every_sensor():
    gpu = FakeGpu()
    with fake_driver(gpu, FakeGpu()):
        sensors, _ = nvml_sensors(lambda: 0.0)
        gpu.error = pynvml.NVML_ERROR_GPU_IS_LOST
        lost = [sensor for sensor in sensors if sensor.domain == "gpu-0"]
        assert {"nvml_energy", "nvml", "nvml_gpm"} == {sensor.name for sensor in lost}
        for sensor in lost:
            with pytest.raises(PipelineError, match=r"nvml gpu-0: cannot be read \(GPU is lost\)"):
                sensor.sample()
        assert values([sensor for sensor in sensors if sensor.domain == "gpu-1"])["temperature_c"] == 47


def test_a_gpu_that_was_lost_before():
    with fake_driver(FakeGpu(error=pynvml.NVML_ERROR_GPU_IS_LOST)):
        assert nvml_sensors(lambda: 0.0) == ([], ["nvml gpu-0: cannot be read (GPU is lost)"])


def test_an_old_driver_lacks_functions():
    """The real pynvml says that its library has no such function; here the library has neither GPM nor the reasons."""
    with fake_driver(FakeGpu()) as library:
        missing = ("nvmlGpmQueryDeviceSupport", "nvmlDeviceGetCurrentClocksEventReasons")
        kind = type("OldLibrary", (type(library),), {})
        pynvml.nvmlLib = kind(*library.gpus)
        real = kind.__getattr__

        def lacking(self, name):
            if name in missing:
                raise AttributeError(name)
            return real(self, name)

        kind.__getattr__ = lacking
        sensors, notes = nvml_sensors(lambda: 0.0)
    assert named(sensors, "nvml_energy")
    assert not named(sensors, "nvml_gpm")
    assert all("Function Not Found" in note for note in notes)


def test_an_old_pynvml_knows_the_reasons_by_their_old_name(monkeypatch):
    monkeypatch.delattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons")
    asked = lambda handle: pynvml.nvmlClocksThrottleReasonHwSlowdown  # noqa: E731
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", asked)
    with fake_driver(FakeGpu()):
        read = values(named(nvml_sensors(lambda: 0.0)[0], "nvml"))
    assert [name for name, value in read.items() if name.startswith("is_") and value] == ["is_throttled_by_hardware"]


def test_every_quantity_is_declared():
    with fake_driver(FakeGpu(), FakeGpu(has_gpm=False)):
        sensors, _ = nvml_sensors(lambda: 0.0)
        given = {quantity for sensor in sensors for quantity in sensor.quantities}
    assert given - {"power_w"} == {
        name for name in QUANTITIES if name.startswith(("is_", "gpu_", "sm_", "memory_clock", "memory_util", "temp"))
    } | {"tensor_activity_share", "dram_bandwidth_share", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"}


def test_without_a_driver_there_is_no_sensor(monkeypatch):
    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    sensors, notes = nvml_sensors(lambda: 0.0)
    assert sensors == []
    assert notes == [
        "nvml: no GPU power (NVML Shared Library Not Found); where there is an NVIDIA GPU, install its driver"
    ]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_sensors(lambda: 0.0) == ([], ["nvml: not installed; pip install nvidia-ml-py to measure GPUs"])


def test_gpm_that_cannot_allocate_is_left_out(monkeypatch):
    def refuse():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_MEMORY)

    with fake_driver(FakeGpu()):
        monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", refuse)
        sensors, notes = nvml_sensors(lambda: 0.0)
    assert not named(sensors, "nvml_gpm")
    assert notes == [f"nvml gpu-0: cannot be read (Insufficient Memory): left out {', '.join(GPM_SHARES)}"]


def test_a_pynvml_that_does_not_know_gpm(monkeypatch):
    monkeypatch.delattr(pynvml, "nvmlGpmQueryDeviceSupport")
    with fake_driver(FakeGpu()):
        sensors, notes = nvml_sensors(lambda: 0.0)
    assert not named(sensors, "nvml_gpm")
    assert "this nvidia-ml-py has no nvmlGpmQueryDeviceSupport" in notes[0]
