"""Compare the law of a processor's power with published readings of its own counters (RAPL), family by family.

    python -m benchmarks.measuring.processor_power

``processor_power.yaml`` has the readings. The curve and the likely full load come from the servers that are called
fitted there. All other processors took no part in either: they say how many readings the interval holds. The unit is
the family, because processors of one generation err alike. Servers that were measured at the plug bound the power of
their packages from both sides.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.power.host_power import kind_of
from common.power.processor_law import ProcessorLaw, read_processor_law
from common.power.processors import PROCESSORS, read_processors

READINGS = Path(__file__).with_suffix(".yaml")
LOADS = (0.0, 0.1, 0.5, 1.0)  # of the readings of a fitted server
GB_PER_S = (55e9, 62e9)  # what STREAM is taken to reach
SUPPLY = (0.90, 0.96)  # efficiency of power supplies: 80 PLUS Platinum at full load, Titanium at half load


@dataclass(frozen=True, slots=True)
class Reading:
    """Power of all packages in W with a share of the cores at work; ``tdp_w`` is that of all packages."""

    family: str
    processor: str
    kind: str
    tdp_w: float
    cores_in_use: float
    watts: float

    @property
    def share_of_tdp(self) -> float:
        return self.watts / self.tdp_w

    def error(self, law: ProcessorLaw) -> float:
        """Return the reading over the likely power."""
        return self.share_of_tdp / law.share_of_tdp(self.kind, self.cores_in_use)


def configured_law() -> ProcessorLaw:
    return read_processor_law(Section.of_file(PROCESSORS.with_suffix(".yaml")))


def readings() -> tuple[list[Reading], list[Reading]]:
    """Return the fitted readings and those that took no part."""
    content, table = load_yaml(READINGS), read_processors()

    def read(row: Mapping[str, Any], points: Iterable[Iterable[float]]) -> list[Reading]:
        name = row["processor"]
        tdp_w = row["packages"] * (row.get("tdp_w") or table[name].tdp_w)
        return [Reading(row["family"], name, kind_of(name), tdp_w, cores, watts) for cores, watts in points]

    fitted = (
        read(row, [*zip(LOADS, row["load"], strict=True), *((1.0, watts) for watts in row["full"])])
        for row in content["fitted"]
    )
    others = (read(row, row["readings"]) for row in content["held_out"])
    return [*chain.from_iterable(fitted)], [*chain.from_iterable(others)]


def at_the_plug() -> list[tuple[Reading, Reading]]:
    """Return the least and the most that the packages of each server draw which was measured at the plug.

    The most is all that leaves the power supply. The least is what is added to the idle power: what memory and fans add
    is taken to be at most what the idle packages draw.
    """
    found, table = [], read_processors()
    for row in load_yaml(READINGS)["at_the_plug"]:
        name = row["processor"]
        about = row["family"], name, kind_of(name), row["packages"] * table[name].tdp_w
        for load, (watts, idle) in zip(row.get("loads") or repeat(1.0), row["watts"], strict=False):
            found.append((Reading(*about, load, SUPPLY[0] * (watts - idle)), Reading(*about, load, SUPPLY[1] * watts)))
    return found


def verdict(ends: tuple[Reading, Reading], law: ProcessorLaw) -> str:
    """Return whether both ends of what was read are inside the interval, neither can be, or one of them is."""
    least, most = ends
    if is_inside(least, law) and is_inside(most, law):
        return "inside"
    share = law.full_load_share
    below, above = most.error(law) < share.low / share.likely, least.error(law) > share.high / share.likely
    return "outside" if below or above else "undecided"


def by_family(found: Iterable[Reading]) -> dict[str, list[Reading]]:
    families: dict[str, list[Reading]] = defaultdict(list)
    for reading in found:
        families[reading.family].append(reading)
    return dict(families)


def full_load_share(fitted: Iterable[Reading]) -> float:
    """Return the share of TDP at full load: the median of the families' geometric means."""
    full = by_family(reading for reading in fitted if reading.cores_in_use == 1)
    return exp(median(fmean(log(reading.share_of_tdp) for reading in family) for family in full.values()))


def is_inside(reading: Reading, law: ProcessorLaw) -> bool:
    """Return whether the interval holds a reading: at work that of the power, idle that of the idle share."""
    likely, low, high = law.full_load_share.likely, law.full_load_share.low, law.full_load_share.high
    if not reading.cores_in_use:
        idle = law.idle_share[reading.kind]
        return idle.low <= reading.share_of_tdp <= idle.high
    return low / likely <= reading.error(law) <= high / likely


def coverage(found: Iterable[Reading], law: ProcessorLaw) -> dict[str, tuple[int, int]]:
    """Return for each family how many readings the interval holds, and of how many."""
    return {name: (sum(is_inside(each, law) for each in rows), len(rows)) for name, rows in by_family(found).items()}


def family_line(name: str, rows: list[Reading], law: ProcessorLaw) -> str:
    errors = [reading.error(law) for reading in rows]
    held = sum(is_inside(reading, law) for reading in rows)
    mean = exp(fmean(map(log, errors)))
    processors = len({reading.processor for reading in rows})
    return f"{name:<20}{processors:>11}{held:>5} of {len(rows):<4}{mean:>8.2f}{min(errors):>8.2f}{max(errors):>8.2f}"


def report(title: str, found: list[Reading], law: ProcessorLaw) -> None:
    held = coverage(found, law)
    inside, count = sum(part for part, _ in held.values()), sum(whole for _, whole in held.values())
    share = fmean(part / whole for part, whole in held.values())
    print(f"\n{title}: {inside} of {count} inside, mean over {len(held)} families {share:.0%}")
    print(f"{'family':<20}{'processors':>11}{'inside':>12}{'mean':>8}{'low':>8}{'high':>8}   reading / likely")
    for name, rows in sorted(by_family(found).items()):
        print(family_line(name, rows, law))


def report_plugs(found: list[tuple[Reading, Reading]], law: ProcessorLaw) -> None:
    groups: dict[str, list[tuple[Reading, Reading]]] = defaultdict(list)
    for ends in found:
        groups[ends[0].family + (", part load" if ends[0].cores_in_use < 1 else "")].append(ends)
    print(f"\nat the plug\n{'family':<20}{'inside':>8}{'undecided':>11}{'outside':>9}   reading / likely: least, most")
    for name, rows in groups.items():
        held = Counter(verdict(ends, law) for ends in rows)
        spans = []
        for side in (0, 1):
            errors = [ends[side].error(law) for ends in rows]
            spans.append(f"{min(errors):.2f} to {max(errors):.2f}")
        counts = f"{held['inside']:>8}{held['undecided']:>11}{held['outside']:>9}"
        print(f"{name:<20}{counts}   {', '.join(spans)}")


def memory_pj_per_byte() -> list[tuple[float, float]]:
    """Return what a byte costs under STREAM: power beyond idle over the bandwidth, at both ends of what it reaches."""
    rows = load_yaml(READINGS)["memory"]
    beyond_w = [row["modules"] * (row["stream_w"] - row["idle_w"]) for row in rows]
    return [(1e12 * watts / GB_PER_S[1], 1e12 * watts / GB_PER_S[0]) for watts in beyond_w]


def main() -> int:
    law, (fitted, others) = configured_law(), readings()
    width = law.full_load_share.high / law.full_load_share.low
    fit, configured = full_load_share(fitted), law.full_load_share.likely
    print(f"full load: {fit:.2f} of TDP by the fitted servers; {configured} configured")
    print(f"interval: a factor of {width:.2f}")
    report("fitted, at work", [each for each in fitted if each.cores_in_use], law)
    report("held out, at work", [each for each in others if each.cores_in_use], law)
    report("idle", [each for each in (*fitted, *others) if not each.cores_in_use], law)
    report_plugs(at_the_plug(), law)
    print("\nmemory under STREAM:", ", ".join(f"{low:.0f} to {high:.0f} pJ/byte" for low, high in memory_pj_per_byte()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
