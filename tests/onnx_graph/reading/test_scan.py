"""Reading a model without its weights: what is skipped, what is kept, and every way a file can be broken."""

from __future__ import annotations

import mmap
import os
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from common.onnx_graph.reading.scan import KEPT_BYTES, MAPPED_PAYLOADS, _varint, _Walk, scan
from common.onnx_graph.work import measure
from models.small.tiny import build_tiny_cnn
from tests.support.models.onnx_models import model, weight

MEGABYTE = 1_000_000
TINY = build_tiny_cnn(batch=2).SerializeToString()


def field(number: int, body: bytes, length: int | None = None) -> bytes:
    """A length-delimited field; its content may be said to be longer than what is there."""
    return _varint(number << 3 | 2) + _varint(len(body) if length is None else length) + body


def model_with_hole(path: Path, elements: int) -> Path:
    """MatMul with a float32 weight of (elements, 1), whose payload is a hole in a sparse file."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    front = model([node], {"x": (3, elements)}, {"y": None}).SerializeToString()
    size = 4 * elements
    payload = _varint(9 << 3 | 2) + _varint(size)  # raw_data
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[elements, 1]).SerializeToString() + payload
    inner = len(tensor) + size
    graph = field(5, tensor, inner)  # a second `graph` field is merged with the first
    with path.open("wb") as file:
        file.write(front + field(7, graph, len(graph) + size))
        file.truncate(file.tell() + size)
    return path


def peak_bytes(path: Path) -> int:
    tracemalloc.start()
    try:
        scan(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_hundred_megabytes_cost_no_more_than_one(tmp_path):
    small = model_with_hole(tmp_path / "small.onnx", MEGABYTE // 4)
    large = model_with_hole(tmp_path / "large.onnx", 100 * MEGABYTE // 4)
    assert large.stat().st_size - small.stat().st_size > 98 * MEGABYTE
    lengths = [len(scan(path).model.SerializeToString()) for path in (small, large)]
    assert abs(lengths[1] - lengths[0]) <= 4  # longer varints of its shape
    assert peak_bytes(small) < MEGABYTE / 10
    assert peak_bytes(large) < MEGABYTE / 10
    graph = load_model(large, {}).graph
    assert measure(graph, graph.nodes[0]).weight_bytes == 100 * MEGABYTE
    assert scan(small).model_id != scan(large).model_id


def linear(*shape: int, fill: float = 0.0) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    return model([node], {"x": (3, shape[0])}, {"y": None}, {"w": np.full(shape, fill, np.float32)})


def saved(path: Path, proto: onnx.ModelProto, **options) -> Path:
    onnx.save(proto, path, **options)
    return path


def test_the_id_is_of_graph_and_lengths_and_not_of_weights(tmp_path):
    first = scan(saved(tmp_path / "a.onnx", linear(29, 31)))
    values = scan(saved(tmp_path / "b.onnx", linear(29, 31, fill=0.5)))
    shape = scan(saved(tmp_path / "c.onnx", linear(29, 37)))
    assert first.model_id == values.model_id != shape.model_id
    assert not first.model.graph.initializer[0].raw_data


def test_small_tensors_keep_their_values_and_large_ones_do_not(tmp_path):
    kept = scan(saved(tmp_path / "kept.onnx", linear(KEPT_BYTES // 4, 1, fill=0.5))).model.graph.initializer[0]
    assert numpy_helper.to_array(kept).sum() == KEPT_BYTES // 4 * 0.5
    left = scan(saved(tmp_path / "left.onnx", linear(KEPT_BYTES // 4 + 1, 1))).model.graph.initializer[0]
    assert not left.HasField("raw_data")
    assert tuple(left.dims) == (KEPT_BYTES // 4 + 1, 1)


@pytest.mark.parametrize("is_large", [False, True])
def test_external_data_gives_the_same_work(tmp_path, is_large):
    width = 1009 if is_large else 7
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Reshape", ["c", "shape"], ["y"])]
    weights = {"w": weight(width, 3, 3, 3), "shape": np.array([width, 11 * 15])}
    proto = model(nodes, {"x": (1, 3, 13, 17)}, {"y": None}, weights)
    options = {"save_as_external_data": True, "location": "side.bin", "size_threshold": 0}
    path = saved(tmp_path / "model.onnx", proto, **options)
    graph = load_model(path, {}).graph
    work = measure(graph, graph.nodes[0])
    assert work.macs == width * 11 * 15 * 27
    assert work.weight_bytes == 4 * width * 27
    assert graph.tensors["y"].shape == (width, 165)  # the target shape came from the side file


@pytest.mark.parametrize(
    ("key", "text"),
    [("location", "gone.bin"), ("location", "../outside.bin"), ("location", "a\0b"), ("length", "eight"),
     ("length", "-1"), ("length", "9"), ("offset", "-8"), ("offset", "far"), ("offset", "5"),
     ("offset", "9" * 30)],
)  # fmt: skip
def test_an_unusable_side_file_leaves_a_value_unknown(tmp_path, key, text):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="view")]
    proto = model(nodes, {"x": (5, 7)}, {"y": None}, {"shape": np.array([35])})
    folder = tmp_path / "model"
    folder.mkdir()
    for side in (folder / "side.bin", tmp_path / "outside.bin"):
        side.write_bytes((35).to_bytes(8, "little"))
    entries = {"location": "side.bin", "offset": "0", "length": "8"}
    for changed in (entries, {**entries, key: text}):
        tensor = proto.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for name, entry in changed.items():
            tensor.external_data.add(key=name, value=entry)
        (folder / "model.onnx").write_bytes(proto.SerializeToString())
        shape = load_model(folder / "model.onnx", {}).graph.tensors["y"].shape
        assert (shape == (35,)) is (changed is entries)


def external(name: str, length: int, offset: int = 0, location: str = "side.bin") -> TensorProto:
    """An int64 tensor that lies in a side file."""
    tensor = TensorProto(name=name, data_type=TensorProto.INT64, dims=[length // 8])
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=entry)
    return tensor


def body(*weights: TensorProto) -> onnx.GraphProto:
    constant = helper.make_node("Constant", [], ["c"], value=external("constant", 16, 32))
    made = [helper.make_tensor_value_info("c", TensorProto.INT64, [2])]
    return helper.make_graph([constant], "body", [], made, weights)


def test_a_side_file_behind_a_loop_of_links_leaves_a_value_unknown(tmp_path):
    proto = model([helper.make_node("Reshape", ["x", "s"], ["y"], name="r")], {"x": (5, 7)}, {"y": None})
    proto.graph.initializer.append(external("s", 8, 0, "a.bin"))
    onnx.save(proto, tmp_path / "m.onnx")
    (tmp_path / "a.bin").symlink_to("b.bin")
    (tmp_path / "b.bin").symlink_to("a.bin")
    assert load_model(tmp_path / "m.onnx", {}).graph.tensors["y"].shape == (None,)


def test_small_side_tensors_are_fetched_wherever_they_stand(tmp_path):
    """An If in a Loop's place, its Constant, a sparse weight, a local function: numbers 0, 1, 2, … by their offset."""
    (tmp_path / "side.bin").write_bytes(np.arange(1024).tobytes())
    (tmp_path / "other.bin").write_bytes(np.arange(100, 103).tobytes())
    inner = body(external("deep", 8, 56), external("large", 2 * KEPT_BYTES))
    outer = body(external("shallow", 24, 16))
    outer.node.append(helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=body()))
    proto = model(
        [
            helper.make_node("If", ["x"], ["y"], then_branch=outer, else_branch=body()),
            helper.make_node("Own", ["y"], []),
        ],
        {"x": (1,)},
        {"y": None},
        functions=[helper.make_function("own", "Own", [], [], [body().node[0]], [helper.make_opsetid("", 17)])],
    )
    proto.graph.initializer.extend([external("first", 8, 8), external("second", 24, 0, "other.bin")])
    proto.graph.sparse_initializer.add(values=external("values", 16, 40), indices=external("indices", 8, 72))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    found = scan(tmp_path / "model.onnx").model
    other, outer = (attribute.g for attribute in found.graph.node[0].attribute)  # sorted by name
    inner = next(attribute.g for attribute in outer.node[1].attribute if attribute.name == "then_branch")
    sparse = found.graph.sparse_initializer[0]
    constants = [graph.node[0].attribute[0].t for graph in (outer, other, inner)]
    constants.append(found.functions[0].node[0].attribute[0].t)
    values = [
        numpy_helper.to_array(tensor).tolist()
        for tensor in (
            *found.graph.initializer,
            sparse.values,
            sparse.indices,
            *outer.initializer,
            inner.initializer[0],
        )
    ]
    assert values == [[1], [100, 101, 102], [5, 6], [9], [2, 3, 4], [7]]
    assert [numpy_helper.to_array(tensor).tolist() for tensor in constants] == [[4, 5]] * 4
    assert inner.initializer[1].data_location == TensorProto.EXTERNAL  # 2 KiB stay where they are


def test_small_constants_of_a_body_keep_their_values_and_large_ones_do_not(tmp_path):
    small, large = (numpy_helper.from_array(np.arange(count), "value") for count in (7, KEPT_BYTES // 8 + 1))
    nodes = [helper.make_node("Constant", [], [name], value=value) for name, value in (("c", small), ("d", large))]
    branch = helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("c", TensorProto.INT64, [7])])
    proto = model(
        [helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)], {"x": (1,)}, {"y": None}
    )
    found = scan(saved(tmp_path / "model.onnx", proto)).model.graph.node[0]
    for kept, left in ([node.attribute[0].t for node in attribute.g.node] for attribute in found.attribute):
        assert numpy_helper.to_array(kept).tolist() == list(range(7))
        assert not left.HasField("raw_data")


@pytest.mark.slow
def test_weights_in_the_file_are_not_mapped_in_one_by_one(tmp_path):
    """Payloads of 128 KiB: the pages around each would add up to 16 times what may stay."""
    path, size = tmp_path / "model.onnx", 2**17
    linear_front = linear(29, 31).SerializeToString()
    count = 16 * MAPPED_PAYLOADS
    with path.open("wb") as file:
        file.write(linear_front)
        for index in range(count):
            payload = _varint(9 << 3 | 2) + _varint(size)
            tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[size // 4]).SerializeToString()
            tensor += payload
            graph = field(5, tensor, len(tensor) + size)
            file.write(field(7, graph, len(graph) + size))
            file.seek(size, 1)
        file.truncate()
    path.read_bytes()  # into the page cache: what is not there is not mapped in beside what is asked for
    walk = _Walk(mmap.mmap(os.open(path, os.O_RDONLY), 0, access=mmap.ACCESS_READ))
    walk.strip(memoryview(walk.mapped), "model")
    resident = Path("/proc/self/smaps").read_text().partition(str(path))[2].partition("Rss:")[2].split()[0]
    assert len(walk.dropped) == 1 + count
    assert int(resident) * 1024 < count * size / 16


def refusal(path: Path) -> str:
    with pytest.raises(PipelineError) as caught:
        load_model(path, {})
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_what_is_no_model_is_refused_in_one_line(tmp_path):
    path = tmp_path / "model.onnx"
    assert "No such file" in refusal(path)
    path.mkdir()
    assert "Is a directory" in refusal(path)
    path = tmp_path / "other.onnx"
    for content, problem in (
        (b"", "is empty"),
        (b"# a text file\nthat is no model\n" * 99, "is not an ONNX model"),
        (b"PK\x03\x04" + bytes(99), "is not an ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "holds no graph"),
        (model([], {"x": (2,)}, {"x": (2,)}).SerializeToString(), "has no nodes"),
        (field(7, field(1, b"x" * 2000)), "is not valid ONNX"),
        (b"\xff" * 20, "is too long"),
        (b"\x00\x01", "is not an ONNX model"),
    ):
        path.write_bytes(content)
        assert problem in refusal(path)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    assert "Permission denied" in refusal(tmp_path / "model.onnx")


def test_messages_nested_beyond_any_model_are_refused(tmp_path):
    body = b"x" * 2000
    for _ in range(1500):
        body = field(1, field(5, field(6, body)))  # node, attribute, subgraph
    path = tmp_path / "deep.onnx"
    path.write_bytes(field(7, body))
    assert "is not an ONNX model" in refusal(path)


@pytest.mark.parametrize("end", range(1, len(TINY), 97))
def test_truncation_at_any_byte_is_refused(tmp_path, end):
    path = tmp_path / "cut.onnx"
    path.write_bytes(TINY[:end])
    refusal(path)


def load_or_refuse(content: bytes) -> None:
    """Anything but a PipelineError escapes and fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzz.onnx"
        path.write_bytes(content)
        try:
            graph = load_model(path, {}).graph
            works = [measure(graph, node) for node in graph.nodes]
        except PipelineError as error:
            assert "\n" not in str(error)
        else:
            assert len(works) > 0


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_a_model_or_refused(content):
    load_or_refuse(content)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(TINY) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_model_with_wrong_bytes_is_a_model_or_refused(changes):
    content = bytearray(TINY)
    for place, byte in changes:
        content[place] = byte
    load_or_refuse(bytes(content))
