"""Tasks of a batch: several inferences that one call computes together.

Rows of a product with a weight, images of a window and rows of a row-wise operator are stacked, so the weights cross
the border once for the whole batch. Products of two activations are as many as before for each inference.
"""

from __future__ import annotations

from dataclasses import replace

from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise
from common.workload.tasks import Task


def batched(task: Task, count: int) -> Task:
    """Return the task of several inferences in one call: the same weights, and everything else as many times."""
    return replace(
        task,
        layers=tuple(batched_layer(layer, count) for layer in task.layers),
        read_bytes=count * task.read_bytes,
        written_bytes=count * task.written_bytes,
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
