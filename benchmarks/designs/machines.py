"""Compare machines that everyone knows with the figures that were published for them.

``benchmarks/designs/machines.yaml`` has the figures and their sources, ``configs/hardware/`` the machines. Of Eyeriss,
the published mappings are priced as they are, and of Gemmini also the tiles of its own software. Otherwise each layer
has the fastest mapping of the space. DOSA's rows judge Gemmini, too (``benchmarks.designs.dosa_rows``,
``benchmarks.designs.gemmini_rtl``).

    eyeriss      conv1               time_ms       16.5       13.9   0.84  recalled
    nvdla        resnet50            per_second     269      295.1   1.10  vendor
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.designs.gemmini_tiles import software_cycles
from benchmarks.designs.layers import nests_of
from benchmarks.process import ROOT
from common.design_space.accelerator.hardware import Hardware
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.placement import Placement
from common.design_space.mapping.space.layer_by_layer import repeats_of
from common.design_space.mapping.space.nest_fronts import ALONE, Setting, nest_fronts
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LoopNest

FIGURES = Path(__file__).with_suffix(".yaml")
ON_CHIP: Setting = (Placement(frozenset({"input", "output"})), 0.0)


@dataclass(frozen=True)
class Compared:
    """A published figure beside its estimate, and the least and the most that their ratio may be."""

    machine: str
    name: str
    quantity: str
    published: float
    ours: float
    within: Sequence[float]
    trust: str

    @property
    def ratio(self) -> float:
        return self.ours / self.published

    @property
    def is_within(self) -> bool:
        return self.within[0] <= self.ratio <= self.within[1]


def figures() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FIGURES.read_text(encoding="utf-8"))
    return content


@cache
def machine(name: str) -> Hardware:
    return load_hardware(name, ROOT / "configs" / "hardware")


def eyeriss(published: dict[str, Any]) -> Iterator[Compared]:
    """Yield the layers of AlexNet on Eyeriss, with the mappings that its paper gives."""
    hardware = machine("eyeriss")
    for layer in published["layers"]:
        mappings = parse_mappings([layer["mapping"]], hardware)
        result = cost(mappings, Nests.of([LoopNest(**layer["nest"])]), hardware)
        elements = [sum(float(np.asarray(count)[0]) for verb in (result.reads, result.writes)
                        for count in verb[level].values()) for level in (0, 1)]  # fmt: skip
        parts = [float(np.asarray(part)[0]) for part in result.energy_parts_pj]
        pairs = {
            "time_ms": (layer["time_ms"], float(np.asarray(result.compute_cycles)[0]) / hardware.clock_mhz / 1e3),
            "dram_mb": (layer["dram_mb"] * layer["compression"], elements[0] * 2e-6),
            "buffer_mb": (layer["buffer_mb"], elements[1] * 2e-6),
            "chip_uj": (layer["power_mw"] * layer["total_ms"], (sum(parts) - parts[1]) * 1e-6),
        }
        for quantity, (theirs, ours) in pairs.items():
            within, trust = published["within"][quantity], published["trust"]
            yield Compared("eyeriss", layer["name"], quantity, theirs, ours, within, trust)


def fastest_cycles(nest: LoopNest, hardware: Hardware, setting: Setting = ALONE) -> float:
    """Return the cycles of the fastest mapping of a nest."""
    return min(point.cycles for point in nest_fronts(nest, hardware, [setting]).fronts[setting])


def product(row: dict[str, Any]) -> Compared:
    """Return a network of equal square matrix products, whose activations stay on the chip."""
    hardware, weights = machine(row["machine"]), row["weights"] / row["layers"]
    side = row.get("side", round(sqrt(weights)))
    cycles = fastest_cycles(LoopNest(p=row["batch"], c=side, k=side), hardware, ON_CHIP)
    tera_ops = 2 * row["batch"] * weights / (cycles / hardware.clock_mhz) * 1e-6
    return Compared(row["machine"], row["name"], "tera_ops", row["tera_ops"], tera_ops, row["within"], row["trust"])


def sized(hardware: Hardware, sizes: dict[str, Any]) -> Hardware:
    """Return a machine with another array, and other sizes and bandwidths of memories."""
    array = {side: sizes[side] for side in ("rows", "columns") if side in sizes}
    other = hardware.resized(**array, capacity_kib=sizes.get("kib", {}))
    rates = sizes.get("bytes_per_cycle", {})
    levels = [replace(level, bytes_per_cycle=rates.get(level.name, level.bytes_per_cycle)) for level in other.levels]
    return replace(other, levels=tuple(levels))


def network(row: dict[str, Any], nests: dict[str, LoopNest]) -> Compared:
    """Return a figure of a network's contractions, one after the other.

    It is what the row gives: images per second, or the share of its operations that the array does.
    """
    hardware = sized(machine(row["machine"]), row.get("sizes", {}))
    hardware = hardware.with_rtl() if row.get("cycles") == "rtl" else hardware
    repeats = repeats_of(nests)
    images = row.get("software_images")  # the tiles of Gemmini's software are of so many images
    cycles = sum(
        times * (software_cycles(nest, hardware, images) / images if images else fastest_cycles(nest, hardware))
        for nest, times in repeats.items()
    )
    quantity, ours = "per_second", row.get("count", 1) * hardware.clock_mhz * 1e6 / cycles
    if "use_share" in row:
        macs = sum(times * nest.macs for nest, times in repeats.items())
        quantity, ours = "use_share", macs / cycles / hardware.array.elements
    name = f"{row['model']} {hardware.array.rows}x{hardware.array.columns}"
    return Compared(row["machine"], name, quantity, row[quantity], ours, row["within"], row["trust"])


def compared() -> Iterator[Compared]:
    """Yield every published figure with its estimate."""
    published = figures()
    yield from eyeriss(published["eyeriss"])
    yield from map(product, published["products"])
    with tempfile.TemporaryDirectory() as scratch:
        nests = cache(lambda model: nests_of(model, Path(scratch)))
        for row in published["networks"]:
            yield network(row, nests(row["model"]))


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    print(f"{'machine':<12}{'what':<20}{'quantity':<12}{'published':>10}{'ours':>10}{'ratio':>7}  trust")
    are_within = True
    for row in compared():
        verdict = "" if row.is_within else f"  not within {row.within[0]:g} to {row.within[1]:g}"
        print(
            f"{row.machine:<12}{row.name:<20}{row.quantity:<12}{row.published:>10.4g}{row.ours:>10.4g}"
            f"{row.ratio:>7.2f}  {row.trust}{verdict}"
        )
        are_within &= row.is_within
    return int(not are_within)


if __name__ == "__main__":
    sys.exit(main())
