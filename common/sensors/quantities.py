"""The quantities that sensors measure, by name, with their meaning. A name ends with its unit.

A share is from 0 to 1. A name that begins with ``is_`` is 0 or 1.
"""

from __future__ import annotations

POWER = "power_w"

QUANTITIES: dict[str, str] = {
    POWER: "power: the mean since the previous sample from an energy counter, else as the instrument averages it",
    # of a GPU
    "temperature_c": "temperature of the GPU's die in degrees Celsius",
    "sm_clock_mhz": "clock of the GPU's multiprocessors",
    "memory_clock_mhz": "clock of the GPU's memory",
    "gpu_utilization_share": "share of the driver's last sampling period in which any kernel ran",
    "memory_utilization_share": "share of the driver's last sampling period in which GPU memory was read or written",
    "gpu_memory_used_bytes": "GPU memory in use by all processes",
    "is_throttled_by_power_cap": "clocks are reduced by the software power limit",
    "is_throttled_by_temperature": "clocks are reduced because of temperature, by software or hardware",
    "is_throttled_by_power_brake": "clocks are reduced by an external power brake",
    "is_throttled_by_hardware": "clocks are reduced by the hardware: temperature, power brake or supply",
    "is_throttled_by_clock_setting": "clocks are limited by the clocks that a user set",
    "is_throttled_by_sync_boost": "clocks are limited to those of another GPU of the sync-boost group",
    "is_gpu_idle": "clocks are low because nothing runs on the GPU",
    # of a GPU with GPM
    "sm_utilization_share": "share of the GPU's multiprocessors that were busy since the previous sample",
    "sm_occupancy_share": "active warps over the maximum of the multiprocessors, mean since the previous sample",
    "tensor_activity_share": "share of time in which tensor cores of any type were active since the previous sample",
    "dram_bandwidth_share": "used bandwidth of the GPU's memory over its maximum, mean since the previous sample",
    "pcie_tx_bytes_per_s": "PCIe traffic from the GPU",
    "pcie_rx_bytes_per_s": "PCIe traffic to the GPU",
    # of the host and of this process
    "cpu_utilization_share": "busy processor time over the time of all logical processors since the previous "
    "sample; domain host: of all processes, domain process: of this process",
    "cpu_frequency_mhz": "current frequency, mean over the logical processors",
    "memory_available_bytes": "memory that can be allocated without swapping",
    "memory_resident_bytes": "memory of this process that is in RAM",
    "handle_count": "files, sockets and other handles that this process has open",
    "thread_count": "threads of this process",
    "context_switches_per_s": "context switches of all processors since the previous sample",
    "voluntary_context_switches_per_s": "times that a thread of this process gave up its processor "
    "to wait, since the previous sample",
    "involuntary_context_switches_per_s": "times that a thread of this process was preempted since the previous sample",
}
