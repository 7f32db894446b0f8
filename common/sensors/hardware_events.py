"""The processor events of each counter, by vendor, and a parser for the output of ``perf stat -x,``.

Events are counted in user mode only (``:u``): an unprivileged user may count no others, and inference runs in user
mode. Vendor events are given as raw codes (unit mask and event), since perf knows names only for processors older than
itself: Intel's FP_ARITH_INST_RETIRED.VECTOR (SDM volume 3, "Performance Monitoring Events"); AMD's PMCx008 by
width from Zen 4 on, PMCx0CB before it (Processor Programming Reference, "Core Performance Monitor Counters").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from common.graphs.grouping import grouped

GENERIC = {name.replace("-", "_"): name for name in ("instructions", "cycles", "cache-references", "cache-misses")}
VECTOR = "vector_instructions"
_INTEL, _AMD_BEFORE_ZEN4, _AMD_ZEN4 = "rfcc7", "r04cb", "r3808"
# Zen 4 models of family 25; the other models are Zen 3. Family 26 is Zen 5 (linux/arch/x86/kernel/cpu/amd.c).
_ZEN4_MODELS = (range(0x10, 0x20), range(0x60, 0x80), range(0xA0, 0xB0))
MOST_PER_CYCLE = 16  # instructions retired per cycle; processors built so far retire at most 12
# A higher rate is impossible: twice 16 instructions per cycle at 6 GHz on each processor.
_MOST_PER_S = 2e11


@dataclass(frozen=True, slots=True)
class Count:
    """Count of one event over a window; if ``value`` is None, ``problem`` says why."""

    event: str
    value: int | None
    # Share of the window in which a hardware counter was assigned to the event; below 1, the value is extrapolated
    counted_share: float | None
    problem: str = ""


def vendor_events(cpuinfo: str) -> dict[str, str]:
    """Return the vendor's events by counter, from the text of /proc/cpuinfo; empty if none is known."""
    fields = dict(line.partition(":")[::2] for line in cpuinfo.splitlines())
    known = {name.strip(): value.strip() for name, value in fields.items()}
    vendor, family, model = known.get("vendor_id"), int(known.get("cpu family", 0)), int(known.get("model", 0))
    if vendor == "GenuineIntel":
        return {VECTOR: _INTEL}
    if vendor != "AuthenticAMD" or family < 0x17:
        return {}
    is_zen4 = family >= 0x1A or (family == 0x19 and any(model in models for models in _ZEN4_MODELS))
    return {VECTOR: _AMD_ZEN4 if is_zen4 else _AMD_BEFORE_ZEN4}


def known_events(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Return the perf event of each counter on this host."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return {**GENERIC, **vendor_events(text)}


def parse_counts(output: str, events: Mapping[str, str], window_s: float, processors: int) -> dict[str, Count]:
    """Parse the output of ``perf stat -x,``: value, unit, event, time counted, share of time in percent, ….

    For a counter that they do not virtualise, virtual machines give zero or a count that no processor can reach. Such a
    count becomes None with the reason.
    """
    rows = (line.split(",") for line in output.splitlines())
    printed = {fields[2].partition(":")[0]: (fields[0], fields[4]) for fields in rows if len(fields) >= 5}
    most = window_s * processors * _MOST_PER_S
    return _without_contradictions(
        {name: _count(event, *printed.get(event, ("<not printed>", "")), most) for name, event in events.items()}
    )


def _count(event: str, value: str, share: str, most: float) -> Count:
    if not value.isdecimal():
        return Count(event, None, None, value.strip("<>"))
    counted_share, number = _share(share), int(value)
    if number == 0:
        return Count(event, None, counted_share, "did not count, so it is not virtualised here")
    if number > most:
        return Count(event, None, counted_share, f"{number} is impossible in this time")
    return Count(event, number, counted_share)


def _share(percent: str) -> float | None:
    try:
        share = float(percent) / 100
    except ValueError:
        return None
    return share if math.isfinite(share) else None


def _without_contradictions(counts: dict[str, Count]) -> dict[str, Count]:
    """Discard a part that exceeds its whole, and more instructions than fit into the cycles."""
    for part, whole in (("cache_misses", "cache_references"), (VECTOR, "instructions")):
        inner, outer = value_of(counts, part), value_of(counts, whole)
        if inner is not None and outer is not None and inner > outer:
            counts[part] = replace(counts[part], value=None, problem=f"{inner} of {outer} {whole} is impossible")
    done, cycles = value_of(counts, "instructions"), value_of(counts, "cycles")
    if done is not None and cycles is not None and done > MOST_PER_CYCLE * cycles:
        problem = f"{done} instructions in {cycles} cycles is impossible"
        counts |= {name: replace(counts[name], value=None, problem=problem) for name in ("instructions", "cycles")}
    return counts


def value_of(counts: Mapping[str, Count], name: str) -> int | None:
    return counts[name].value if name in counts else None


def problem_notes(counts: Mapping[str, Count]) -> list[str]:
    """Return one line for each reason for missing values, and one line for extrapolated values."""
    reasons = grouped((count.problem, f"{name} ({count.event})") for name, count in counts.items() if count.problem)
    notes = [f"perf: unavailable: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    shared = [name for name, count in counts.items() if count.value is not None and (count.counted_share or 1) < 1]
    if shared:
        notes.append(f"perf: extrapolated, since the processor has too few counters: {', '.join(shared)}")
    return notes
