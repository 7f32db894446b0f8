"""Reader of configs/kernels: a list of kernels by their sizes, with the work and the traffic of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from common.configuration import Section
from common.names import quoted
from common.number_formats import PRECISION_BITS

LARGEST_EXTENT = 10**9  # a larger one is a typing error
LARGEST_COUNT = 2**62  # FLOPs or bytes of all calls
OPERANDS = ("left", "right", "result")


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that one call reads or writes once."""

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
        return _bytes(self.operands, precision)

    def weight_bytes(self, precision: str) -> int:
        return _bytes((operand for operand in self.operands if operand.is_weight), precision)

    def fused_bytes(self, precision: str) -> int:
        """Return the traffic of the card's memory when the kernel is fused with its neighbours."""
        return _bytes((operand for operand in self.operands if not operand.stays_on_chip), precision)


@dataclass(frozen=True, slots=True)
class Analysis:
    """Kernels, and the board whose ceilings they are compared with."""

    board: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class KernelList:
    """Content of a file of configs/kernels."""

    title: str
    source: str
    precisions: tuple[str, ...]
    drawn_precision: str
    as_stated: Analysis
    corrected: Analysis


def _bytes(operands: Iterable[Operand], precision: str) -> int:
    return sum(-(-operand.elements * PRECISION_BITS[precision] // 8) for operand in operands)


def read_kernel_list(file: Section) -> KernelList:
    """Read a file of ``configs/kernels``.

    Raises:
        ConfigurationError: a key is missing or unknown, a size is not a whole number, or two kernels of one analysis
            share a name.
    """
    sizes = file.section("dimensions")
    dimensions = {name: _whole(sizes, name, sizes.number(name)) for name in sizes}
    kernel_list = KernelList(
        title=file.text("title"),
        source=file.text("source"),
        precisions=tuple(file.entries("precisions")),
        drawn_precision=file.choice("drawn_precision", tuple(PRECISION_BITS)),
        as_stated=_analysis(file.section("as_stated"), dimensions),
        corrected=_analysis(file.section("corrected"), dimensions),
    )
    file.close()
    if unknown := [name for name in kernel_list.precisions if name not in PRECISION_BITS]:
        raise file.error("precisions", f"has an unknown {quoted(unknown[0])}", f"it takes {', '.join(PRECISION_BITS)}")
    if kernel_list.drawn_precision not in kernel_list.precisions:
        raise file.error("drawn_precision", f"is {kernel_list.drawn_precision}, which is not among the precisions")
    return kernel_list


def _analysis(section: Section, dimensions: Mapping[str, int]) -> Analysis:
    kernels = tuple(_kernel(entry, dimensions) for entry in section.sections("kernels"))
    names = [kernel.name for kernel in kernels]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise section.error("", f"has more than one kernel {repeated}")
    return Analysis(section.text("board"), kernels)


def _kernel(entry: Section, dimensions: Mapping[str, int]) -> Kernel:

    def size(key: str, default: int | None = None) -> int:
        return default if default is not None and key not in entry else _size(entry, key, dimensions)

    name, (m, n, batch, calls) = entry.text("kernel"), (size("m"), size("n"), size("batch", 1), size("calls", 1))
    k = size("k") if "k" in entry else None
    on_chip = _on_chip(entry)
    if k is None:
        flops = batch * m * n * size("flops_per_element")
        operands = _row_operands(batch * m * n, size("reads", 1), on_chip)
    else:
        has_weight = entry.switch("weight", default=True)
        flops, operands = 2 * batch * m * k * n, _product_operands((m, k, n), batch, has_weight, on_chip)
    if calls * max(flops, 8 * sum(operand.elements for operand in operands)) > LARGEST_COUNT:
        raise entry.error("", f"({name}) is larger than a table can count")
    return Kernel(name, m, k, n, batch, calls, flops, operands)


def _size(entry: Section, key: str, dimensions: Mapping[str, int]) -> int:
    value = entry.value(key)
    if isinstance(value, str) and value in dimensions:
        return dimensions[value]
    try:
        number = float(str(value))
    except ValueError:
        known = f"known dimensions: {', '.join(dimensions)}"
        raise entry.error(key, f"is {quoted(value)}, which is not a size", known) from None
    return _whole(entry, key, number)


def _on_chip(entry: Section) -> frozenset[str]:
    names = entry.entries("on_chip") if "on_chip" in entry else []
    if unknown := [name for name in names if name not in OPERANDS]:
        raise entry.error("on_chip", f"has an unknown {quoted(unknown[0])}", f"it takes {', '.join(OPERANDS)}")
    return frozenset(names)


def _product_operands(
    sizes: tuple[int, int, int], batch: int, has_weight: bool, on_chip: frozenset[str]
) -> tuple[Operand, ...]:
    m, k, n = sizes
    elements = {"left": batch * m * k, "right": batch * k * n, "result": batch * m * n}
    return tuple(Operand(count, has_weight and name == "right", name in on_chip) for name, count in elements.items())


def _row_operands(elements: int, reads: int, on_chip: frozenset[str]) -> tuple[Operand, ...]:
    names = ["left", *["right"] * (reads - 1), "result"]
    return tuple(Operand(elements, stays_on_chip=name in on_chip) for name in names)


def _whole(section: Section, key: str, value: float) -> int:
    if not isfinite(value) or value != int(value) or not 1 <= value <= LARGEST_EXTENT:
        raise section.error(key, f"is {value:g}, which is not a whole number from 1 to {LARGEST_EXTENT:,}")
    return int(value)
