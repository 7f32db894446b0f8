"""Tasks of a batch: what grows with it and what does not, by hand in primes."""

from __future__ import annotations

import pytest

from common.workload.layers import Convolution, Matmul, Pointwise, Pooling, Rowwise
from common.workload.tasks import Task, batched, batched_layer

CONVOLUTION = Convolution(1, 3, 17, 19, 23, 15, 17, 3, 3)
LAYERS = [
    (Matmul(61, 127, 31), Matmul(305, 127, 31)),
    (Matmul(61, 127, 31, batch=7), Matmul(305, 127, 31, batch=7)),  # each of seven weights meets more rows
    (Matmul(61, 127, 31, batch=3, has_weight=False), Matmul(61, 127, 31, batch=15, has_weight=False)),
    (CONVOLUTION, Convolution(5, 3, 17, 19, 23, 15, 17, 3, 3)),
    (Pooling(1, 23, 15, 17, 7, 8, 2, 2), Pooling(5, 23, 15, 17, 7, 8, 2, 2)),
    (Rowwise("Softmax", 61, 127), Rowwise("Softmax", 305, 127)),
    (Pointwise("Add", 7_747, 2, 127), Pointwise("Add", 38_735, 2, 127)),
]


@pytest.mark.parametrize(("one", "five"), LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_over_five_inferences(one, five):
    assert batched_layer(one, 5) == five
    assert batched_layer(one, 1) == one


def test_weights_cross_the_border_once_for_all():
    task = Task("t", "conv", (CONVOLUTION,), "int8", 621, 969, 5_865, on_chip_bytes=211)
    five = batched(task, 5)
    assert five.macs == 5 * task.macs
    assert (five.weight_bytes, five.read_bytes, five.written_bytes) == (621, 5 * 969, 5 * 5_865)
    assert five.on_chip_bytes == 211  # one inference after another goes through a chain
    assert five.border_bytes < 5 * task.border_bytes
