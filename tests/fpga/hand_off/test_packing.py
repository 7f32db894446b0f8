"""What a hand-off packs of a quantized network, by the integers of the engine."""

from __future__ import annotations

import numpy as np
import pytest

from common.fpga.hand_off.packing import packed_call
from common.fpga.rtl.engine.arithmetic import tensors_of
from common.fpga.rtl.engine.reading.layers import layers_of
from tests.support.engine.maps import one

PRODUCT = {"is_transposed": False, "outer_loop": "rows"}  # as a plan has it


def packed(layer):
    return packed_call("K1", layer.node, layer, PRODUCT)


def maps(network):
    random = np.random.default_rng(2)
    return {
        each.name: random.integers(-128, 128, (each.channels, each.height, each.width)).astype(np.int8)
        for each in network.inputs
    }


@pytest.mark.parametrize("given", [{"apart": 2}, {"apart": 3, "pad": 2, "stride": 2}, {"groups": 2, "pad": 1}])
def test_a_call_has_the_integers_of_the_engine(given):
    """Its own sums differ only in where the zero point of the input is taken off."""
    network = layers_of(one(4, 11, 10, 6, 3, **given))
    (layer,), inputs = network.layers, maps(network)
    call = packed(layer)
    expected = tensors_of(network, {name: values[None] for name, values in inputs.items()})[layer.y.name][0]
    assert len(np.unique(expected)) > 50, "the results say little"
    np.testing.assert_array_equal(call.result(inputs[layer.x.name], None), expected)
    assert (call.call.layer.dilation_height, call.call.layer.dilation_width) == layer.dilations
