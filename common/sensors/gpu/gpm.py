"""GPU performance monitoring (GPM) of NVML, from Hopper on: activity of multiprocessors, memory and PCIe.

NVML samples all counters into memory of its own and computes the metrics from two samples (nvml.h,
``nvmlGpmMetricsGet``). Two samples are allocated once, used in turn, and freed with the sensor.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from common.messages.errors import PipelineError
from common.sensors.gpu.device import Device
from common.sensors.sensor import SLOW_PERIOD_S, Sample

_MIB = 2.0**20
# Quantity: name of the metric in pynvml, and the factor from its unit (percent, MiB/s) to ours.
_METRICS = {
    "sm_utilization_share": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "sm_occupancy_share": ("NVML_GPM_METRIC_SM_OCCUPANCY", 0.01),
    "tensor_activity_share": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "dram_bandwidth_share": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "pcie_tx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MIB),
    "pcie_rx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MIB),
}
PCIE = frozenset(name for name in _METRICS if name.startswith("pcie"))


class GpmSensor:
    """GPM metrics of a device, each the mean since the previous sample.

    A PipelineError says that the GPU does not support GPM, or not for this user.
    """

    name = "nvml_gpm"
    period_s = SLOW_PERIOD_S

    def __init__(self, device: Device) -> None:
        nvml = device.pynvml
        support = device.call("nvmlGpmQueryDeviceSupport")
        if not support.isSupportedDevice:
            raise device.error("no GPM; GPUs have it from Hopper on")
        self.domain = device.domain
        self.quantities = tuple(_METRICS)
        self._device = device
        try:
            self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        except nvml.NVMLError as error:
            raise device.error(str(error)) from error
        self.close = weakref.finalize(self, _free, nvml, self._samples)
        self._request = _request(nvml, [getattr(nvml, metric) for metric, _ in _METRICS.values()])
        self._is_counting = False

    def restart(self) -> None:
        self._is_counting = False

    def sample(self) -> Sequence[Sample]:
        """Return the metrics since the previous sample; a metric that the device does not give is left out."""
        newer, older = self._samples
        self._device.call("nvmlGpmSampleGet", newer)
        now_s, was_counting = self._device.clock(), self._is_counting
        self._samples.reverse()
        self._is_counting = True
        if not was_counting:
            return ()
        self._request.sample1, self._request.sample2 = older, newer
        nvml = self._device.pynvml
        try:
            nvml.nvmlGpmMetricsGet(self._request)
        except nvml.NVMLError as error:
            raise self._device.error(str(error)) from error
        return [
            Sample(now_s, self.name, self.domain, quantity, metric.value * unit)
            for (quantity, (_, unit)), metric in zip(_METRICS.items(), self._request.metrics, strict=False)
            if metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value)
        ]


def gpm_sensor(device: Device) -> tuple[GpmSensor | None, list[str]]:
    """Return the sensor, if the device supports GPM, and a note on the metrics that the device does not give."""
    try:
        sensor = GpmSensor(device)
        sensor.sample()
        time.sleep(SLOW_PERIOD_S)  # closer samples give no metrics
        given = [sample.quantity for sample in sensor.sample()]
    except PipelineError as error:
        return None, [f"{error}: left out {', '.join(name for name in _METRICS if name not in PCIE)}"]
    missing = [quantity for quantity in _METRICS if quantity not in given]
    sensor.quantities = tuple(given)
    note = f"nvml {device.domain}: GPM does not give {', '.join(missing)}"
    return sensor, [note] if missing else []


def _request(nvml: ModuleType, metrics: Sequence[int]) -> Any:
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(metrics)
    for slot, metric in zip(request.metrics, metrics, strict=False):
        slot.metricId = metric
    return request


def _free(nvml: ModuleType, samples: Sequence[Any]) -> None:
    for sample in samples:
        try:
            nvml.nvmlGpmSampleFree(sample)
        except nvml.NVMLError:
            return  # the driver is gone, and the samples with it
