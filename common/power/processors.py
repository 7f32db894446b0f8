"""Processors by name: their thermal design power, and the host that a measurement was made on.

configs/processors.csv has one row per processor. benchmarks/measuring/processor_table.py writes it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.files.small_file import small_text
from common.messages.errors import ConfigurationError, UnusableValueError
from common.messages.names import did_you_mean, quoted

PROCESSORS = Path(__file__).resolve().parents[2] / "configs" / "processors.csv"
COLUMNS = ("processor", "tdp_w", "threads", "source", "date")
MOST = 2**60  # of what a host has: a sidecar may hold any number
THREADS_PER_CORE = 2  # of the processors whose name says how many cores they have: AMD's

_CORES = re.compile(r"\b(dual|quad|six|eight|twelve|sixteen|\d+)-core\b")
_NOT_NAME = re.compile(
    rf"\((?:r|tm|c)\)|[®™]|\b\d+(?:st|nd|rd|th) gen\b|{_CORES.pattern}|\b(?:cpu|processor)\b|@.*|\bwi?t?h?/? radeon\b.*"
)


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor of the table; ``threads`` are the hardware threads of one package, None where they are unknown."""

    name: str
    tdp_w: float
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the operating system says about the machine of a measurement; None, or an empty name, is unknown."""

    cpu_model: str = ""
    cpu_signature: tuple[int, int] | None = None  # family and model of CPUID
    thread_count: int | None = None  # hardware threads that the system sees
    core_count: int | None = None
    package_count: int | None = None
    memory_bytes: int | None = None
    is_virtual: bool = False  # whether a hypervisor is below it

    @classmethod
    def of(cls, host: Mapping[str, Any]) -> HostFacts:
        """Return the facts of a sidecar; those of another type are unknown, and so are all of an older sidecar."""
        if "is_virtual" not in host:
            return cls()
        signature, name = host.get("cpu_signature"), host.get("cpu_model")
        is_pair = isinstance(signature, list) and len(signature) == 2 and all(type(part) is int for part in signature)
        return cls(
            cpu_model=name if isinstance(name, str) else "",
            cpu_signature=(signature[0], signature[1]) if is_pair and signature else None,
            thread_count=_count(host.get("cpu_count")),
            core_count=_count(host.get("core_count")),
            package_count=_count(host.get("package_count")),
            memory_bytes=_count(host.get("memory_bytes")),
            is_virtual=host.get("is_virtual") is True,
        )


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < MOST else None


def plain_name(text: str) -> str:
    """Return the name of a processor without marks, clock, generation and count of cores, in lower case."""
    return " ".join(_NOT_NAME.sub(" ", text.lower().replace("\xa0", " ")).split())


def named_threads(text: str) -> int | None:
    """Return the hardware threads of a package whose name says how many cores it has: ``AMD EPYC 7763 64-Core``."""
    cores = _CORES.search(text.lower())
    return THREADS_PER_CORE * int(cores[1]) if cores and cores[1].isdigit() else None


def read_processors(path: Path = PROCESSORS) -> dict[str, Processor]:
    """Return processors by their plain name; ConfigurationError: the file cannot be read, or a row has no number."""
    rows = csv.DictReader(io.StringIO(small_text(path)))
    try:
        read = (Processor(row["processor"], float(row["tdp_w"]), int(row["threads"] or 0) or None) for row in rows)
        return {processor.name: processor for processor in read}
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(path, f"line {rows.line_num} is unusable ({error})", "restore the file") from error


def known_processor(table: Mapping[str, Processor], name: str) -> Processor:
    """Return the processor that the user named; UnusableValueError: the table lacks it."""
    if (found := table.get(plain_name(name))) is None:
        problem = f"no processor is called {quoted(name)}"
        raise UnusableValueError("cpu", problem, f"{did_you_mean(plain_name(name), table)}give <avg_power_w> instead")
    return found
