"""Tasks: the fused layers that one kernel call computes, and the bytes that cross their border in the card's memory.

A batch of inferences stacks rows of a product with a weight, images of a window and rows of a row-wise operator, so the
weights cross the border once for the batch. Products of two activations are as many as before for each inference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """Bytes of a task that are in a memory on the chip before or after its call, and so cross no border."""

    operand: int = 0  # of the activations that its product, window or rows read
    beside: int = 0  # of the other activations that it reads, such as a residual
    written: int = 0  # of what it writes
    weights: int = 0  # of its weights, which inferences share

    @property
    def read(self) -> int:
        return self.operand + self.beside

    def times(self, count: int) -> KeptBytes:
        return KeptBytes(count * self.operand, count * self.beside, count * self.written, self.weights)


NOTHING_KEPT = KeptBytes()


@dataclass(frozen=True, slots=True)
class Task:
    """One fused group at the number format of the kernel."""

    name: str  # unique among tasks
    kind: str  # conv, gemm, attention, rowwise, chain, pool or pointwise
    layers: tuple[Layer, ...]  # in graph order; the tensors between them stay on the chip
    precision: str  # number format: fp64, fp32, bf16, int16, int8 or int4
    weight_bytes: int  # weights, read from the card's memory in every call
    read_bytes: int  # activations that enter
    written_bytes: int  # activations that leave
    # Bytes that it holds on the chip besides the buffers of the engine: for a chain, the rows between its layers and,
    # if it goes through them more than once, their weights
    on_chip_bytes: int = 0
    kept: KeptBytes = NOTHING_KEPT  # what of its activations and weights stays on the chip between calls

    @property
    def nameless(self) -> Task:
        """This task without its name: many tasks of a network differ only in their names."""
        return replace(self, name="")

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers if isinstance(layer, Matmul | Convolution))

    @property
    def border_bytes(self) -> int:
        """Bytes that must cross the border once."""
        return self.weight_bytes + self.read_bytes + self.written_bytes


def batched(task: Task, count: int) -> Task:
    """Return the task of several inferences in one call: the same weights, and everything else as many times."""
    return replace(
        task,
        layers=tuple(batched_layer(layer, count) for layer in task.layers),
        read_bytes=count * task.read_bytes,
        written_bytes=count * task.written_bytes,
        kept=task.kept.times(count),
    )


def batched_layer(layer: Layer, count: int) -> Layer:
    match layer:
        case Matmul(has_weight=True):
            return replace(layer, m=count * layer.m)
        case Matmul() | Convolution() | Pooling():
            return replace(layer, batch=count * layer.batch)
        case Rowwise():
            return replace(layer, rows=count * layer.rows)
        case Pointwise():
            return replace(layer, elements=count * layer.elements)
