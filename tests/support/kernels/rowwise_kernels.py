"""Calls of a small row-wise kernel out of a hand-off, in each number format."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace

import numpy as np

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import rowwise
from common.fpga.hand_off.designs import ARITHMETIC, cpp
from common.workload.layers import Rowwise
from common.workload.tasks import Task
from tests.support.kernels.hls import BITS, Memory, Program, View, as_bytes, compiled, elements, port_names
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
UNITS, LANES, ROW_LIMIT = 3, 4, 31
ELEMENTS, NORMALIZATION, SOFTMAX, FOLD, POOL = range(5)  # kinds of calls


def text_of(precision):
    """The C++ of a kernel whose buffers are short, so that some rows are longer."""
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    task = Task("rows", "rowwise", (Rowwise("Softmax", 7, 11),), precision, 0, 1, 1)
    planned = rowwise(board, precision, models, [task], 0.1, UNITS)
    return cpp(replace(planned, lanes=LANES, row_limit=ROW_LIMIT), "K", port_names(UNITS))


def compiled_kernels(folder):
    """The kernel of each format, as a function."""
    return {precision: compiled(text_of(precision), folder, precision) for precision in ARITHMETIC}


def dense(shape):
    """The strides of a dense tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(4))


class Call:
    """The memory of one call: operands are added first, then it runs."""

    def __init__(self, kernels, precision, x, **view):
        self.kernel, self.bits, self.memory = kernels[precision], BITS[precision], Memory(UNITS)
        self.operands, self.table = [], -1
        self.add(x, **view)

    def add(self, tensor, strides=None, *, is_wide=False, **view):
        base = self.memory.add(as_bytes(tensor, 32 if is_wide else self.bits))
        self.operands.append(View(base, strides or dense(tensor.shape), is_wide=is_wide, **view))

    def tabulate(self, entries):
        self.table = self.memory.add(np.asarray(entries).astype("<i2").tobytes())

    def run(self, kind, extents, result_shape, **program):
        count = math.prod(result_shape)
        base = self.memory.add(bytes((count * self.bits + 7) // 8))
        strides = program.pop("strides", None) or dense(result_shape)
        result = View(base, strides, offset=program.pop("offset", 0))
        whole = Program(kind, extents, table=self.table, result=result, operands=tuple(self.operands), **program)
        content = self.memory.run(self.kernel, ctypes.c_int64(self.memory.add(whole.content())))
        return elements(self.memory.after(content, base), count, self.bits).reshape(result_shape)


def random_of(precision, shape, seed=3):
    """Operands from the whole range of a format."""
    half = 1 << (BITS[precision] - 1)
    return np.random.default_rng(seed).integers(-half, half, shape)


def limits(precision):
    """The limits of a format, for a step."""
    half = 1 << (BITS[precision] - 1)
    return {"least": -half, "most": half - 1}
