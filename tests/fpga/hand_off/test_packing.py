"""What a hand-off packs of a quantized network, by the integers of the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.fpga.hand_off.packing import data_files, packed_call, packed_steps
from common.fpga.rtl.engine.arithmetic import tensors_of
from common.fpga.rtl.engine.network import Residual
from common.fpga.rtl.engine.reading.layers import layers_of
from common.messages.errors import PipelineError
from tests.support.engine.maps import Net, one

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


KERNEL = {
    "kernel": "K1",
    "engine_kind": "systolic",
    "design": "a",
    "precision": "int8",
    "sizes": {"rows": 4, "columns": 4, "products_per_element": 2},
    "tile": {"rows": 8, "columns": 8, "depth": 16},
    "units": [{"unit": "K1"}],
    "ports": [{"unit": "K1", "port": "p0", "width_bits": 64, "memory": "DDR[0]"}],
}


def test_a_call_that_adds_a_constant_reads_it_from_the_data():
    net = Net(4, 5, 5)
    y = net.convolution(net.top, 6, 3, pad=1)
    added = net.constant(net.random.integers(-100, 100, (1, 6, 5, 5)).astype(np.int8))
    scale = [net.constant(np.float32(0.04)), net.constant(np.int8(0))]
    total = net.node("Add", [y, net.node("DequantizeLinear", [added, *scale])])
    network = layers_of(net.model(net.quantized(total, 0.06, 4)))
    ((constant, content),) = network.constants
    (layer,), inputs = network.layers, maps(network)
    files = data_files([KERNEL], [packed(layer)], network, inputs)
    lines = [line.split() for line in files["manifest.txt"].decode().splitlines()]
    read, added, written = (files[name] for *_, name in lines if name in files and name != "K1.bin")
    assert added == content.reshape(6, -1).T.tobytes()
    assert read == inputs[layer.x.name].reshape(4, -1).T.tobytes()
    expected = tensors_of(network, {name: values[None] for name, values in inputs.items()})[layer.y.name][0]
    found = np.frombuffer(written, np.int8).reshape(-1, 6).T.reshape(expected.shape)
    assert np.abs(found.astype(int) - expected).max() <= 1  # the multipliers have fewer bits than the engine's
    assert constant.name not in inputs


def test_what_is_a_part_or_a_factor_is_refused_by_the_name_of_the_node():
    network = layers_of(one(8, 5, 5, 8, 1))
    (layer,), inputs = network.layers, maps(network)
    whole = layer.x
    residual = Residual(whole, layer.y.scale, layer.y.zero, -128, 127)
    for part in (
        replace(layer, x=whole.channels_of(2, 4)),
        replace(layer, y=layer.y.channels_of(2, 4)),
        replace(layer, residual=replace(residual, other=whole.lines_of(1, 2))),
        replace(layer, residual=replace(residual, is_factor=True)),
    ):
        with pytest.raises(PipelineError, match=f"^{layer.node}: reads or writes a part of a tensor, or multiplies"):
            data_files([KERNEL], [packed(part)], network, inputs)


def test_a_call_is_packed_though_its_group_has_a_layer_of_its_own():
    """The addition of a pixel is a copy through the engine, and no product of the plan's call."""
    net = Net(4, 5, 5)
    y = net.convolution(net.top, 6, 3, pad=1)
    net.shape = (4, 5, 5)
    pixel = net.quantized(net.node("GlobalAveragePool", [net.convolution(net.top, 6, 1)]), 0.02, 0)
    network = layers_of(net.model(net.quantized(net.node("Add", [y, pixel]), 0.06, 4)))
    (conv, *_), copy = network.layers, network.layers[-1]
    assert copy.residual and copy.weights is not None
    steps = [
        {"activity": "host"},
        {"activity": "call", "kernel": "K1", "candidate": "c1", "source_nodes": [conv.node, copy.node]},
        {"activity": "call", "kernel": "K2", "candidate": "c2", "source_nodes": [copy.node]},
    ]
    kernel = KERNEL | {"calls": [{"candidate": "c1", "products": [PRODUCT]}]}
    ((call,), nothing) = packed_steps([kernel], {"steps": steps}, {conv.node: conv})
    assert (call.candidate, call.layer, nothing) == ("c1", conv, [])
