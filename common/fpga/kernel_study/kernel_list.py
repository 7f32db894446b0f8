"""A list of kernels by their sizes (configs/kernels): work, traffic, and the place under the roofline of a board."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from common.files.configuration import Section
from common.fpga.device.board import BoardCeilings
from common.graphs.number_formats import PRECISION_BITS
from common.messages.errors import ConfigurationError
from common.messages.names import quoted
from common.roofline import Ceilings, attainable_flop_per_s
from common.table_rows import KernelCeilingsRow, KernelsCorrectedRow, KernelsRow

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
        names = ["left", *["right"] * (size("reads", 1) - 1), "result"]
        operands = tuple(Operand(batch * m * n, stays_on_chip=name in on_chip) for name in names)
    else:
        flops, has_weight = 2 * batch * m * k * n, entry.switch("weight", default=True)
        elements = {"left": batch * m * k, "right": batch * k * n, "result": batch * m * n}
        operands = tuple(
            Operand(count, has_weight and name == "right", name in on_chip) for name, count in elements.items()
        )
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


def _whole(section: Section, key: str, value: float) -> int:
    if not isfinite(value) or value != int(value) or not 1 <= value <= LARGEST_EXTENT:
        raise section.error(key, f"is {value:g}, which is not a whole number from 1 to {LARGEST_EXTENT:,}")
    return int(value)


def stated_rows(kernel_list: KernelList) -> Iterator[KernelsRow]:
    """Yield a row per kernel and number format, for one call: FLOPs = 2·M·K·N, bytes = (M·K + K·N + M·N) × element."""
    for precision in kernel_list.precisions:
        for kernel in kernel_list.as_stated.kernels:
            yield _counts(kernel, precision)


def corrected_rows(kernel_list: KernelList, ceilings: BoardCeilings) -> Iterator[KernelsCorrectedRow]:
    """Yield a row per kernel and number format of the corrected list, with totals and the time at the roof.

    A ConfigurationError says that the board has no peak for a number format.
    """
    for precision in kernel_list.precisions:
        roof = roof_of(ceilings, precision)
        for kernel in kernel_list.corrected.kernels:
            moved, fused = kernel.bytes(precision), kernel.fused_bytes(precision)
            intensity = kernel.flops / moved
            yield {
                **_counts(kernel, precision),
                "batch_count": kernel.batch,
                "call_count": kernel.calls,
                "fused_bytes": fused,
                "total_flops": kernel.calls * kernel.flops,
                "total_bytes": kernel.calls * moved,
                "total_fused_bytes": kernel.calls * fused,
                "attainable_flop_per_s": attainable_flop_per_s(roof, intensity),
                "bound": "compute" if intensity >= roof.ridge_flop_per_byte else "memory",
                "roof_us": kernel.calls * _roof_us(kernel.flops, moved, roof),
                "fused_roof_us": kernel.calls * _roof_us(kernel.flops, fused, roof),
            }


def _counts(kernel: Kernel, precision: str) -> KernelsRow:
    moved = kernel.bytes(precision)
    return {
        "kernel": kernel.name,
        "precision": precision,
        "m": kernel.m,
        "k": kernel.k,
        "n": kernel.n,
        "flops": kernel.flops,
        "bytes": moved,
        "arithmetic_intensity_flop_per_byte": kernel.flops / moved,
        "weight_bytes": kernel.weight_bytes(precision),
    }


def _roof_us(flops: int, moved_bytes: int, roof: Ceilings) -> float:
    return max(flops / roof.peak_flop_per_s, moved_bytes / roof.memory_bytes_per_s) * 1e6


def roof_of(ceilings: BoardCeilings, precision: str) -> Ceilings:
    """Return the roofline of a board in one number format: its peak and its attained bandwidth.

    Raises:
        ConfigurationError: the board has no peak for the number format.
    """
    if precision not in ceilings.peak_flop_per_s:
        known = ", ".join(ceilings.peak_flop_per_s)
        raise ConfigurationError(ceilings.name, f"has no peak for {precision}", f"it has {known}")
    return Ceilings(ceilings.peak_flop_per_s[precision], ceilings.attained_bytes_per_s.likely)


def ceiling_rows(ceilings: Iterable[BoardCeilings], precisions: Sequence[str]) -> Iterator[KernelCeilingsRow]:
    for board in ceilings:
        for precision in (name for name in precisions if name in board.peak_flop_per_s):
            roof = roof_of(board, precision)
            yield {
                "board": board.name,
                "precision": precision,
                "kernel_peak_flop_per_s": roof.peak_flop_per_s,
                "board_memory_bytes_per_s": roof.memory_bytes_per_s,
                "ridge_flop_per_byte": roof.ridge_flop_per_byte,
                "ceiling_source": "given by the profile" if board.is_given else "all DSPs that close on the board",
            }


def absent_peaks(ceilings: Iterable[BoardCeilings], precisions: Sequence[str]) -> list[str]:
    return [
        f"{board.name} has no {precision} peak: {board.absent.get(precision, 'none is given')}"
        for board in ceilings
        for precision in precisions
        if precision not in board.peak_flop_per_s
    ]


# --- effect of the corrections -------------------------------------------------------------------------------------


def correction_of(kernel_list: KernelList) -> dict[str, int]:
    """Return the work of one inference by kind, which shows what the stated list leaves out."""
    kernels = kernel_list.corrected.kernels
    layered = [kernel for kernel in kernels if kernel.k is not None and kernel.calls > 1]
    weighted = [kernel for kernel in layered if any(operand.is_weight for operand in kernel.operands)]
    kinds = {
        "projection_flops": weighted,  # projections and feed-forward network
        "attention_flops": [kernel for kernel in layered if kernel not in weighted],  # QKᵀ and PV
        "row_flops": [kernel for kernel in kernels if kernel.k is None],
    }
    return {kind: sum(kernel.calls * kernel.flops for kernel in of_kind) for kind, of_kind in kinds.items()}
