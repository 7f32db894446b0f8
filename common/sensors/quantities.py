"""Every quantity that a sensor of this room gives, with its unit last in the name, and what it means.

A share is 0 to 1; ``is_`` is 0 or 1.
"""

from __future__ import annotations

POWER = "power_w"

_POWER = {
    POWER: "power; from an energy counter the mean since the previous sample, else as the instrument averages it",
}
_GPU = {
    "temperature_c": "temperature of the GPU's die, in degrees Celsius",
    "sm_clock_mhz": "clock of the GPU's multiprocessors",
    "memory_clock_mhz": "clock of the GPU's memory",
    "gpu_utilization_share": "share of the driver's last sampling period in which any kernel ran",
    "memory_utilization_share": "share of the driver's last sampling period in which GPU memory was read or written",
    "gpu_memory_used_bytes": "memory of the GPU in use, by all processes",
    "is_throttled_by_power_cap": "clocks are held down by the power limit set in software",
    "is_throttled_by_temperature": "clocks are held down by the temperature, by software or hardware",
    "is_throttled_by_power_brake": "clocks are held down by an external power brake",
    "is_throttled_by_hardware": "clocks are held down by the hardware: temperature, power brake or supply",
    "is_throttled_by_clock_setting": "clocks are held down by the clocks that a user set",
    "is_throttled_by_sync_boost": "clocks are held down to those of another GPU of a sync-boost group",
    "is_gpu_idle": "clocks are low because nothing runs on the GPU",
}
_GPM = {
    "sm_utilization_share": "share of the GPU's multiprocessors that were busy, since the previous sample",
    "sm_occupancy_share": "active warps over the most that the multiprocessors hold, since the previous sample",
    "tensor_activity_share": "share of time in which tensor cores of any type worked, since the previous sample",
    "dram_bandwidth_share": "bandwidth of the GPU's memory used over its largest, since the previous sample",
    "pcie_tx_bytes_per_s": "PCIe traffic from the GPU",
    "pcie_rx_bytes_per_s": "PCIe traffic to the GPU",
}
_CPU = {
    "cpu_utilization_share": "busy processor time over that of all logical processors, since the previous sample; "
    "domain host: by all, domain process: by this process",
    "cpu_frequency_mhz": "current frequency, mean over the logical processors",
    "memory_available_bytes": "memory that can be given out without swapping",
    "memory_resident_bytes": "memory of this process that is in RAM",
    "context_switches_per_s": "context switches of all processors, since the previous sample",
    "voluntary_context_switches_per_s": "times a thread of this process waited, since the previous sample",
    "involuntary_context_switches_per_s": "times a thread of this process was put aside for another, since the "
    "previous sample",
}
QUANTITIES: dict[str, str] = {**_POWER, **_GPU, **_GPM, **_CPU}
