"""The integers of the engine by numpy: those of the reference with which the Verilog is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.plans.engine_networks import _signed, sample_of
from benchmarks.plans.integer_reference import outputs
from common.fpga.rtl.engine.arithmetic import tensors_of
from common.fpga.rtl.engine.reading.layers import layers_of
from common.messages.errors import PipelineError
from tests.support.engine import maps, rows

CASES = maps.CASES | rows.CASES


@pytest.mark.parametrize("case", CASES)
def test_two_samples_have_the_integers_of_the_reference(case):
    model = CASES[case]()
    network = layers_of(model)
    expected = [outputs(model, {"input": sample_of(network, seed) * 3}) for seed in (5, 6)]
    of_reference = lambda tensor: np.stack([_signed(tensor, each[tensor.name]) for each in expected])  # noqa: E731
    inputs = {each.name: of_reference(each).astype(np.int8) for each in network.inputs}
    found = tensors_of(network, inputs)
    for layer in network.layers:
        whole = layer.y.whole
        np.testing.assert_array_equal(found[whole.name], of_reference(whole), layer.node)


def test_a_tensor_is_restored_to_the_shape_of_the_model():
    model = rows.CASES["two heads"]()
    for layer in layers_of(model).layers:
        tensor = layer.y.whole
        values = np.arange(tensor.channels * tensor.height * tensor.width)
        heads = 2 if tensor.layout == "heads" else 1
        shape = (1, heads, tensor.height, tensor.channels // heads)
        np.testing.assert_array_equal(tensor.restored(tensor.arranged(values.reshape(shape)), shape).ravel(), values)


def test_a_sum_beyond_the_exact_ones_is_named():
    network = layers_of(maps.one(1, 1, 1, 1, 1))
    (layer,) = network.layers
    large = replace(network, layers=(replace(layer, bias=np.array([1 << 29])),))
    with pytest.raises(PipelineError, match="beyond 2\\^29"):
        tensors_of(large, {layer.x.name: np.zeros((1, 1, 1, 1), np.int8)})
