"""Table rows of a kernel list: work and traffic of every kernel, and its place under the roofline of a board."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import ConfigurationError
from common.fpga.device.board import BoardCeilings
from common.fpga.kernel_study.kernel_list import Kernel, KernelList
from common.roofline import Ceilings, attainable_flop_per_s

if TYPE_CHECKING:
    from common.table_rows import KernelCeilingsRow, KernelsCorrectedRow, KernelsRow


def stated_rows(kernel_list: KernelList) -> Iterator[KernelsRow]:
    """Yield a row per kernel and number format, for one call: FLOPs = 2·M·K·N, bytes = (M·K + K·N + M·N) × element."""
    for precision in kernel_list.precisions:
        for kernel in kernel_list.as_stated.kernels:
            yield _counts(kernel, precision)


def corrected_rows(kernel_list: KernelList, ceilings: BoardCeilings) -> Iterator[KernelsCorrectedRow]:
    """Yield a row per kernel and number format of the corrected list, with totals and the time at the roof.

    Raises:
        ConfigurationError: the board has no peak for a number format.
    """
    for precision in kernel_list.precisions:
        roof = roof_of(ceilings, precision)
        for kernel in kernel_list.corrected.kernels:
            yield _corrected(kernel, precision, roof)


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


def _corrected(kernel: Kernel, precision: str, roof: Ceilings) -> KernelsCorrectedRow:
    moved, fused = kernel.bytes(precision), kernel.fused_bytes(precision)
    intensity = kernel.flops / moved
    return {
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


def ceiling_rows(ceilings: Iterable[BoardCeilings], precisions: Iterable[str]) -> Iterator[KernelCeilingsRow]:
    wanted = tuple(precisions)
    for board in ceilings:
        for precision in (name for name in wanted if name in board.peak_flop_per_s):
            roof = roof_of(board, precision)
            yield {
                "board": board.name,
                "precision": precision,
                "kernel_peak_flop_per_s": roof.peak_flop_per_s,
                "board_memory_bytes_per_s": roof.memory_bytes_per_s,
                "ridge_flop_per_byte": roof.ridge_flop_per_byte,
                "ceiling_source": "given by the profile" if board.is_given else "all DSPs that close on the board",
            }


def absent_peaks(ceilings: Iterable[BoardCeilings], precisions: Iterable[str]) -> list[str]:
    wanted = tuple(precisions)
    return [
        f"{board.name} has no {precision} peak: {board.absent.get(precision, 'none is given')}"
        for board in ceilings
        for precision in wanted
        if precision not in board.peak_flop_per_s
    ]


# --- effect of the corrections -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Correction:
    """Work of one inference by kind, which shows what the stated list leaves out.

    Attributes:
        projection_flops: products with weights in every layer: projections and feed-forward network.
        attention_flops: products without weights: QKᵀ and PV.
        row_flops: operators without products.
    """

    projection_flops: int
    attention_flops: int
    row_flops: int


def correction_of(kernel_list: KernelList) -> Correction:
    """Sum the corrected list: products with weights in every layer, products without, and the rest."""
    kernels = kernel_list.corrected.kernels
    layered = [kernel for kernel in kernels if kernel.k is not None and kernel.calls > 1]
    weighted = [kernel for kernel in layered if any(operand.is_weight for operand in kernel.operands)]
    return Correction(
        _total_flops(weighted),
        _total_flops(kernel for kernel in layered if kernel not in weighted),
        _total_flops(kernel for kernel in kernels if kernel.k is None),
    )


def _total_flops(kernels: Iterable[Kernel]) -> int:
    return sum(kernel.calls * kernel.flops for kernel in kernels)
