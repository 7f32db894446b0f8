"""Measure the processor time of the sampler's thread, as a share of one core, for each set of sensors.

The clock is CLOCK_THREAD_CPUTIME of the thread itself, so other threads do not count. At 100 Hz the limit is 1 % of a
core. The first row is the thread alone, which wakes and reads nothing. The power counters are a made-up tree of files
(two sockets with memory, and psys), and the GPU is a fake library below the real pynvml, so its row excludes the time
of the driver. Every set is measured several times. Other load on the host evicts the caches between two readings and
makes each of them slower, so the least share is that of the sampler itself. Exits 1 if it is above the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measuring.fake_nvml import FakeGpu, fake_driver
from common.sensors.cpu import cpu_sensors
from common.sensors.gpu.nvml import nvml_sensors
from common.sensors.powercap import find_zones, powercap_sensors
from common.sensors.sampler import Sampler
from common.sensors.sensor import GaugeSensor, Sample, Sensor

LARGEST_SHARE = 0.01
ROUNDS = 7
ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram",
    "intel-rapl:2": "psys",
}


@contextlib.contextmanager
def sensor_sets() -> Iterator[dict[str, list[Sensor]]]:
    """Yield each set of sensors by its name, and all of them together."""
    with tempfile.TemporaryDirectory() as folder, fake_driver(FakeGpu()):
        for zone, label in ZONES.items():
            path = Path(folder) / zone
            path.mkdir()
            for file, text in {"name": label, "max_energy_range_uj": "262143328850", "energy_uj": "1009"}.items():
                (path / file).write_text(f"{text}\n")
        clock = time.perf_counter
        sets = {
            "powercap": powercap_sensors(find_zones(Path(folder)), clock)[0],
            "processor": cpu_sensors(clock)[0],
            "nvml": nvml_sensors(clock)[0],
        }
        nothing: list[Sensor] = [GaugeSensor("none", "none", (), tuple)]
        yield {"thread alone": nothing, **sets, "all": [sensor for sensors in sets.values() for sensor in sensors]}


def cost(sensors: Sequence[Sensor], rate_hz: float, seconds: float) -> tuple[float, int, int]:
    """Return the share of one core that the sampler's thread uses, the samples, and how many sample times it missed."""
    start_s = time.perf_counter()
    samples: list[Sample] = []
    with Sampler(sensors, samples, rate_hz) as sampler:
        time.sleep(seconds)
    return sampler.thread_time_s / (time.perf_counter() - start_s), len(samples), sampler.missed_count


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate-hz", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each set, seven times")
    options = parser.parse_args(argv)
    worst = 0.0
    print(
        f"{'sensors':<14}{'count':>6}{'quantities':>12}{'samples/s':>11}{'missed':>8}{'median share':>14}{'least':>9}"
    )
    with sensor_sets() as sets:
        for name, sensors in sets.items():
            costs = [cost(sensors, options.rate_hz, options.seconds) for _ in range(ROUNDS)]
            shares = [share for share, _, _ in costs]
            rate = sum(count for _, count, _ in costs) / (ROUNDS * options.seconds)
            missed = sum(missed for _, _, missed in costs)
            quantities = sum(len(sensor.quantities) for sensor in sensors)
            row = f"{name:<14}{len(sensors):>6}{quantities:>12}{rate:>11.0f}{missed:>8}"
            print(f"{row}{statistics.median(shares):>14.3%}{min(shares):>9.3%}", flush=True)
            worst = max(worst, statistics.median(shares))
    print(f"at {options.rate_hz:g} Hz: {worst:.2%} of a core in the median; {LARGEST_SHARE:.0%} is allowed")
    return int(worst > LARGEST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
