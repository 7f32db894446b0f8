"""A list of kernels by their sizes, as a file of ``configs/kernels`` gives it: what each computes and moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from common.configuration import Section
from common.errors import CommandLineError
from common.number_formats import PRECISION_BITS

LARGEST = 10**9  # of one extent; beyond it is a slip of the pen
MOST = 2**62  # FLOPs or bytes of all calls
OPERANDS = ("left", "right", "result")


@dataclass(frozen=True, slots=True)
class Operand:
    """What one call reads or writes once."""

    elements: int
    is_weight: bool = False
    stays_on_chip: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel. ``k`` is None for an operator without products; ``flops`` and ``operands`` are of one call."""

    name: str
    m: int
    k: int | None
    n: int
    batch: int
    calls: int
    flops: int
    operands: tuple[Operand, ...]

    def bytes(self, precision: str) -> int:
        """Every operand once (a 4-bit element takes half a byte)."""
        return _bytes(self.operands, precision)

    def weight_bytes(self, precision: str) -> int:
        """Those that no run changes."""
        return _bytes((operand for operand in self.operands if operand.is_weight), precision)

    def fused_bytes(self, precision: str) -> int:
        """Those that cross the card's memory when the kernel is fused with its neighbours."""
        return _bytes((operand for operand in self.operands if not operand.stays_on_chip), precision)


@dataclass(frozen=True, slots=True)
class Analysis:
    """Kernels and the board whose ceilings they are held against."""

    board: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class KernelList:
    """What a file of ``configs/kernels`` says."""

    title: str
    source: str
    precisions: tuple[str, ...]
    drawn_precision: str
    as_stated: Analysis
    corrected: Analysis


def _bytes(operands: Iterable[Operand], precision: str) -> int:
    return sum(-(-operand.elements * PRECISION_BITS[precision] // 8) for operand in operands)


def read_kernel_list(path: Path, content: Mapping[str, Any]) -> KernelList:
    """Make a kernel list of the content of its YAML file.

    Raises:
        CommandLineError: a key is missing or unknown, a size is none, or two kernels of one analysis share a name.
    """
    file = Section(path, content)
    sizes = file.section("dimensions")
    dimensions = {name: _whole(path, f"dimensions.{name}", sizes.number(name)) for name in sizes.content}
    found = KernelList(
        title=file.text("title"),
        source=file.text("source"),
        precisions=tuple(_entries(file, "precisions")),
        drawn_precision=file.choice("drawn_precision", tuple(PRECISION_BITS)),
        as_stated=_analysis(file.section("as_stated"), dimensions),
        corrected=_analysis(file.section("corrected"), dimensions),
    )
    file.close()
    if unknown := [name for name in found.precisions if name not in PRECISION_BITS]:
        raise CommandLineError(path, f"precisions: unknown {unknown[0]!r}", f"it takes {', '.join(PRECISION_BITS)}")
    if found.drawn_precision not in found.precisions:
        raise CommandLineError(path, f"drawn_precision: {found.drawn_precision} is not among the precisions")
    return found


def _entries(section: Section, key: str) -> list[Any]:
    """A list that is not empty."""
    section.text(key)  # it has been read
    if not isinstance(content := section.content[key], list) or not content:
        raise CommandLineError(section.path, f"{key} is not a list of at least one entry")
    return content


def _analysis(section: Section, dimensions: Mapping[str, int]) -> Analysis:
    entries = [
        Section(section.path, entry, f"{section.name}.kernels[{index}]")
        for index, entry in enumerate(_entries(section, "kernels"))
    ]
    kernels = tuple(_kernel(entry, dimensions) for entry in entries)
    names = [kernel.name for kernel in kernels]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise CommandLineError(section.path, f"{section.name}: {repeated} is there more than once")
    board = section.text("board")
    section.close()
    return Analysis(board, kernels)


def _kernel(entry: Section, dimensions: Mapping[str, int]) -> Kernel:
    """A product where ``k`` is given, else an operator on rows."""

    def size(key: str, default: int | None = None) -> int:
        if default is not None and key not in entry.content:
            return default
        if (text := entry.text(key)) in dimensions:
            return dimensions[text]
        try:
            return _whole(entry.path, f"{entry.name}.{key}", float(text))
        except ValueError:
            known = ", ".join(dimensions)
            raise CommandLineError(
                entry.path, f"{entry.name}.{key}: {text!r} is no size", f"there is {known}"
            ) from None

    name, (m, n, batch, calls) = entry.text("kernel"), (size("m"), size("n"), size("batch", 1), size("calls", 1))
    k = size("k") if "k" in entry.content else None
    kept = _kept(entry)
    if k is None:
        flops = batch * m * n * size("flops_per_element")
        operands = _row_operands(batch * m * n, size("reads", 1), kept)
    else:
        flops, operands = 2 * batch * m * k * n, _product_operands(entry, (m, k, n), batch, kept)
    entry.close()
    if calls * max(flops, 8 * sum(operand.elements for operand in operands)) > MOST:
        raise CommandLineError(entry.path, f"{entry.name}: {name} is larger than a table can count")
    return Kernel(name, m, k, n, batch, calls, flops, operands)


def _kept(entry: Section) -> set[str]:
    kept = set(_entries(entry, "on_chip")) if "on_chip" in entry.content else set()
    if unknown := kept - set(OPERANDS):
        raise CommandLineError(
            entry.path, f"{entry.name}.on_chip: unknown {min(unknown)!r}", f"it takes {', '.join(OPERANDS)}"
        )
    return kept


def _product_operands(entry: Section, sizes: tuple[int, int, int], batch: int, kept: set[str]) -> tuple[Operand, ...]:
    m, k, n = sizes
    has_weight = "weight" not in entry.content or entry.choice("weight", ("True", "False")) == "True"
    elements = {"left": batch * m * k, "right": batch * k * n, "result": batch * m * n}
    return tuple(Operand(count, has_weight and name == "right", name in kept) for name, count in elements.items())


def _row_operands(elements: int, reads: int, kept: set[str]) -> tuple[Operand, ...]:
    names = ["left", *["right"] * (reads - 1), "result"]
    return tuple(Operand(elements, stays_on_chip=name in kept) for name in names)


def _whole(path: Path, label: str, value: float) -> int:
    if not isfinite(value) or value != int(value) or not 1 <= value <= LARGEST:
        raise CommandLineError(path, f"{label}: {value:g} is not a whole number from 1 to {LARGEST:,}")
    return int(value)
