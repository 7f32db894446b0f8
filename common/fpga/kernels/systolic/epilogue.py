"""The operators on the sums as they leave an array: requantization, and what is fused behind a product.

They take no time, because the array has as many of each as the sums need. A fold of a product leaves in

    max(ceil(K / s), ceil(R / d)) cycles,

and each of its sums passes every operator once. The array has the most of each operator that any of its products needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile
from math import ceil

from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.operators import INTEGERS, Counts, DataflowCosts, lane_of, widest
from common.fpga.kernels.systolic.tiling import sums_per_cycle
from common.workload.layers import Convolution, Matmul, Pointwise
from common.workload.tasks import Task

ROUNDING: Counts = {"convert": 1}  # fp32 sums to bf16
REQUANTIZATION: Counts = {"multiply": 1, "convert": 1}  # by a scale, then rounded and clipped
OF_OPERANDS = {"DequantizeLinear", "QuantizeLinear"}  # requantization takes their place
FOLDED = "BatchNormalization"  # directly behind a product, into its weights


@dataclass(frozen=True, slots=True)
class FusedProduct:
    """A product, and the operators that each of its sums passes, by name."""

    product: Matmul
    operators: tuple[tuple[str, int], ...]


def fused_products(tasks: Iterable[Task]) -> frozenset[FusedProduct]:
    """Return the distinct products of the tasks that an array computes in one call each."""
    return frozenset(product for task in tasks for product in _fused(task))


def _fused(task: Task) -> Iterator[FusedProduct]:
    products = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution)]
    others = [layer.op_type for layer in task.layers if isinstance(layer, Pointwise)]
    if len(products) != 1 or 1 + len(others) < len(task.layers):
        return
    (layer,) = products
    behind = dropwhile(FOLDED.__eq__, (op_type for op_type in others if op_type not in OF_OPERANDS))
    is_integer = task.precision in INTEGERS
    own = REQUANTIZATION if is_integer else ROUNDING if task.precision == "bf16" else {}
    lane = lane_of(behind, is_integer=is_integer)
    matmul = layer.as_matmul() if isinstance(layer, Convolution) else layer
    needed = {name: own.get(name, 0) + lane.get(name, 0) for name in own.keys() | lane.keys()}
    yield FusedProduct(replace(matmul, batch=1, has_weight=True), tuple(sorted(needed.items())))


def epilogue(
    size: tuple[int, int, int], precision: str, products: Iterable[FusedProduct], costs: DataflowCosts
) -> Resources:
    counts = widest(_counts(size, precision, fused) for fused in products)
    return costs.of(is_integer=precision in INTEGERS, **counts)


def _counts(size: tuple[int, int, int], precision: str, fused: FusedProduct) -> Counts:
    rows, cols, simd = size
    product = fused.product
    sums = max(min(rows, m) * min(cols, n) for m, n in ((product.m, product.n), (product.n, product.m)))
    cycles = max(ceil(product.k / simd), ceil(rows / sums_per_cycle(simd, precision)))
    return {name: ceil(count * sums / cycles) for name, count in fused.operators}
