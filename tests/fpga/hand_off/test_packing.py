"""What a hand-off packs of a quantized network, by the integers of the engine."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest

from common.fpga.hand_off.__main__ import main
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


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def hand_off(tmp_path):
    """A hand-off of one convolution, with a model whose batch is open and whose weights are among the inputs."""
    model = one(4, 5, 6, 6, 3)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    for held in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(held.name, held.data_type, held.dims))
    node = next(each.name for each in model.graph.node if each.op_type == "Conv")
    step = {"activity": "call", "kernel": "K1", "candidate": "c1", "source_nodes": [node]}
    kernel = KERNEL | {"calls": [{"candidate": "c1", "products": [PRODUCT]}]}
    for name, content in {"K1.json": kernel, "schedule.json": {"steps": [step]}}.items():
        (tmp_path / name).write_text(json.dumps(content))
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path


def command(monkeypatch, capsys, folder, *samples):
    monkeypatch.setattr(sys, "argv", ["hand_off", *map(str, (folder, folder / "m.onnx", folder / "data", *samples))])
    return main(), *capsys.readouterr()


def test_the_stimuli_are_the_first_sample(hand_off, monkeypatch, capsys):
    x = np.random.default_rng(4).uniform(-9, 9, (3, 4, 5, 6))
    np.savez(hand_off / "s.npz", input=x, labels=np.arange(3))
    code, printed, said = command(monkeypatch, capsys, hand_off, hand_off / "s.npz")
    assert (code, said) == (0, "")
    assert printed.startswith("1 calls, ")
    assert printed.endswith("\n1 of 1 calls of the plan are packed\n")
    quantized = np.clip(np.rint(x[0] / 0.0625) + 3, -128, 127).astype(np.int8)  # the scale and the zero point of Net
    (file,) = (hand_off / "data").glob("*.read.bin")
    assert file.read_bytes() == quantized.reshape(4, -1).T.tobytes()


def test_without_samples_the_stimuli_are_random(hand_off, monkeypatch, capsys):
    assert command(monkeypatch, capsys, hand_off)[0] == 0
    (file,) = (hand_off / "data").glob("*.read.bin")
    assert len(set(file.read_bytes())) > 20


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda path: path.write_bytes(b"nothing"), "s.npz: is no archive of arrays; give a .npz file"),
        (lambda path: path.write_bytes(b""), "s.npz: is no archive of arrays; give a .npz file"),
        (lambda path: np.save(path.open("wb"), np.zeros(3)), "s.npz: is no archive of arrays; give a .npz file"),
        (lambda path: np.savez(path, other=np.zeros((1, 4, 5, 6))), "s.npz: has no samples of input"),
        (
            lambda path: np.savez(path, input=np.zeros((2, 4, 6, 5))),
            "s.npz: has samples of input of [4, 6, 5], and the model reads [4, 5, 6]",
        ),
        (
            lambda path: np.savez(path, input=np.full((1, 4, 5, 6), np.nan)),
            "s.npz: has samples of input that are not finite",
        ),
        (lambda path: None, "s.npz: No such file or directory"),
        (lambda path: (path.parent / "K1.json").write_text("{"), "K1.json: is no JSON"),
        (lambda path: (path.parent / "schedule.json").write_bytes(b"\xff"), "schedule.json: is no JSON"),
        (lambda path: (path.parent / "schedule.json").write_text("[]"), "schedule.json: holds no JSON object"),
    ],
)
def test_bad_input_is_one_line_and_a_code(hand_off, monkeypatch, capsys, write, problem):
    write(hand_off / "s.npz")
    code, printed, said = command(monkeypatch, capsys, hand_off, hand_off / "s.npz")
    assert (code, printed, said.count("\n")) == (1, "", 1)
    assert f"{hand_off}/{problem}" in said
    assert not (hand_off / "data").exists()


def places(content, place=()):
    """The place of every value of a document."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*place, key)
        yield from places(value, (*place, key))


def changed(content, place, change):
    *path, last = place
    holder = content
    for key in path:
        holder = holder[key]
    change(holder, last)


CHANGES = {
    "gone": lambda holder, key: holder.pop(key),
    "null": lambda holder, key: holder.__setitem__(key, None),
    "negative": lambda holder, key: holder.__setitem__(key, -1),
    "number": lambda holder, key: holder.__setitem__(key, float("nan")),
    "empty": lambda holder, key: holder.__setitem__(key, []),
    "large": lambda holder, key: holder.__setitem__(key, 10**20),
    "two lines": lambda holder, key: holder.__setitem__(key, "a\nb"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["K1.json", "schedule.json"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_document_without_one_of_its_values_is_one_line_and_a_code(hand_off, monkeypatch, capsys, name, change):
    """Each value of both documents is taken away or replaced, one at a time."""
    whole = json.loads((hand_off / name).read_text())
    for place in places(whole):
        broken = json.loads(json.dumps(whole))
        changed(broken, place, CHANGES[change])
        (hand_off / name).write_text(json.dumps(broken))
        code, printed, said = command(monkeypatch, capsys, hand_off)
        assert (code, printed, said.count("\n")) == (1, "", 1), (place, said)
        assert str(hand_off) in said, place
        assert not (hand_off / "data").exists()


BAD = [
    *[("width_bits", bad) for bad in (7, 4, 48, 2048, 10**13)],
    ("products_per_element", 4097),
    *[("design", bad) for bad in ("a b", "a/b", "")],
    *[("precision", bad) for bad in ("no", "int4", "fp32")],
    ("outer_loop", "k"),
]


@pytest.mark.parametrize(("key", "bad"), BAD)
def test_a_value_that_no_array_of_bytes_has_is_one_line_and_a_code(hand_off, monkeypatch, capsys, key, bad):
    document = json.loads((hand_off / "K1.json").read_text())
    (place,) = (place for place in places(document) if place[-1] == key)
    changed(document, place, lambda holder, last: holder.__setitem__(last, bad))
    (hand_off / "K1.json").write_text(json.dumps(document))
    code, printed, said = command(monkeypatch, capsys, hand_off)
    assert (code, printed, said.count("\n")) == (1, "", 1), said
    assert str(hand_off) in said
    assert not (hand_off / "data").exists()
