"""Row-wise work in integers: tables and factors of a call, as rows.v computes with them.

A function of one tensor is a table of its 256 values, which are what QuantizeLinear makes of them. Softmax and
LayerNormalization compute as rows.v says: exponentials of 17 bits, a reciprocal of 17 bits from an exact sum or from
the exact root of an exact variance, and factors of 18 bits for each channel. Before it is rounded, a probability is off
by 2^-16 at most, and a normalized value of nine or more by 2^-12 of the channel's factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.messages.errors import PipelineError

Kind = Literal["table", "softmax", "normalization"]
TABLE_ENTRIES = 256
EXPONENTIAL_MOST = (1 << 17) - 1  # the largest of a row
SOFTMAX_BITS, NORMAL_BITS = 16, 12  # of the fraction of t: of a probability, of a value over the deviation
SHIFTS = {"table": 16, "softmax": 17, "normalization": 21}  # 33 - k - bits of the fraction; of a table, of r
FACTOR_MOST, OFFSET_MOST = (1 << 17) - 1, (1 << 31) - 1
MOST_LAST_SHIFT = 30
MOST_CHANNELS = 1024  # of a row
ADDEND_BITS, ADDEND_UNIT = 40, 64


@dataclass(frozen=True, slots=True)
class RowWork:
    """What is computed of each row."""

    kind: Kind  # which of the three formulas
    table: NDArray[np.int32]  # entries by byte of x, or by how far it is below the largest of its row
    factors: NDArray[np.int64]  # g and b of each channel, or of all
    offsets: NDArray[np.int64]
    last_shift: int  # of t * g + b
    addend: int = 0  # epsilon in units of x, times the square of the channels, in parts of 64

    @property
    def is_per_channel(self) -> bool:
        return self.factors.size > 1


def table_work(values: NDArray[np.int64]) -> RowWork:
    """Return the work of a function whose results are given for x = -128 to 127."""
    by_byte = np.roll(values, TABLE_ENTRIES // 2).astype(np.int32)  # 0 to 127, -128 to -1
    return RowWork("table", by_byte, np.ones(1, np.int64), np.zeros(1, np.int64), 0)


def softmax_work(x_scale: float, y_scale: float, y_zero: int) -> RowWork:
    table = np.rint(np.exp(-np.arange(TABLE_ENTRIES) * x_scale) * EXPONENTIAL_MOST).astype(np.int32)
    factors, offsets, last = _in_integers(np.ones(1), np.zeros(1), SOFTMAX_BITS, y_scale, y_zero)
    return RowWork("softmax", table, factors, offsets, last)


def normalization_work(
    scales: tuple[float, float], y_zero: int, gamma: NDArray[Any], beta: NDArray[Any], epsilon: float
) -> RowWork:
    """Return the work of LayerNormalization; ``scales`` are those of x and of y.

    Raises:
        PipelineError: a figure does not fit.
    """
    addend = max(1, round(ADDEND_UNIT * gamma.size**2 * epsilon / scales[0] ** 2))
    if addend >= 1 << ADDEND_BITS:
        raise PipelineError("LayerNormalization", f"epsilon is too large for a scale of {scales[0]:g}")
    factors, offsets, last = _in_integers(gamma, beta, NORMAL_BITS, scales[1], y_zero)
    return RowWork("normalization", np.zeros(0, np.int32), factors, offsets, last, addend)


def _in_integers(
    gamma: NDArray[Any], beta: NDArray[Any], bits: int, scale: float, zero: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return g, b and the last shift of y = t / 2^bits * gamma / scale + beta / scale + zero: the largest that fits."""
    factor = gamma.astype(np.float64) / scale / 2.0**bits
    offset = beta.astype(np.float64) / scale + zero
    for last in range(MOST_LAST_SHIFT, 0, -1):
        g, b = np.rint(factor * 2.0**last), np.rint(offset * 2.0**last) + (1 << (last - 1))
        if np.abs(g).max() <= FACTOR_MOST and np.abs(b).max() <= OFFSET_MOST:
            return g.astype(np.int64), b.astype(np.int64), last
    raise PipelineError("row-wise work", f"a scale of {scale:g} is too small for its factors")
