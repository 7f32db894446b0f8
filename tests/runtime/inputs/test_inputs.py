"""What the model is fed."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from common.graphs.graph import Graph, Node, Tensor
from common.messages.errors import PipelineError, UnusableValueError
from common.onnx_graph.load import load_model
from common.runtime.inputs.given import make_feeds, random_input, read_input
from common.runtime.sessions.session import SessionSettings, create_session

SHAPE = (2, 3, 5, 7)


def tensor(dtype="float32", shape=SHAPE, name="x"):
    return Tensor(name=name, dtype=dtype, element_bits=32, shape=shape, kind="input")


def graph(*tensors):
    return Graph(nodes=(), tensors={found.name: found for found in tensors}, outputs=())


def saved(path, array):
    np.save(path, array)
    return path


def test_random_inputs_repeat_with_the_seed_and_differ_without():
    model = graph(tensor(), tensor("int64", (3, 11), "ids"), tensor("bool", (13,), "mask"))
    first, again, other = (make_feeds(model, {}, seed) for seed in (0, 0, 1))
    assert {name: (array.dtype.name, array.shape) for name, array in first.items()} == {
        "x": ("float32", SHAPE),
        "ids": ("int64", (3, 11)),
        "mask": ("bool", (13,)),
    }
    assert set(first["ids"].ravel()) == {0, 1}
    assert all((first[name] == again[name]).all() for name in first)
    assert not (first["x"] == other["x"]).any()


def test_a_string_input_holds_text_and_a_scalar_is_one():
    assert random_input(tensor("string", (2,)), np.random.default_rng(0)).tolist() == ["text", "text"]
    assert random_input(tensor("float32", ()), np.random.default_rng(0)).shape == ()


@pytest.mark.parametrize(("dtype", "shape"), [("float3e9m9", SHAPE), ("sequence", None), ("undefined", None)])
def test_a_type_without_numpy_equivalent(dtype, shape):
    with pytest.raises(UnusableValueError, match=f"<model>: numpy has no type for {dtype}, the type of its input x"):
        random_input(tensor(dtype, shape), np.random.default_rng(0))


def test_an_input_of_unknown_rank_needs_a_file_and_takes_its_shape(tmp_path):
    unknown = graph(tensor(shape=None))
    with pytest.raises(UnusableValueError, match=r"<input>: input x needs a file, .* its rank; give <input> x=FILE"):
        make_feeds(unknown, {}, 0)
    array = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert (make_feeds(unknown, {"x": saved(tmp_path / "x.npy", array)}, 0)["x"] == array).all()
    with pytest.raises(UnusableValueError, match="type float64, the model takes float32"):
        make_feeds(unknown, {"x": saved(tmp_path / "y.npy", array.astype(np.float64))}, 0)


@pytest.mark.parametrize("shape", [(2**40, 3), (2**40, 2**40)])
def test_an_input_that_no_memory_holds(shape):
    with pytest.raises(PipelineError, match=r"input x: too large for memory: \[1099511627776, .*<dim>"):
        make_feeds(graph(tensor(shape=shape)), {}, 0)


def test_a_file_that_promises_more_than_memory_holds(tmp_path):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 29), }".ljust(117) + "\n"
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 64)
    with pytest.raises(UnusableValueError, match=r"x\.npy: (too large for memory|cannot be read)"):
        read_input(tensor(), path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", "float8e5m2", "int4"])
def test_types_of_onnx_that_numpy_alone_lacks(dtype):
    drawn = random_input(tensor(dtype, (7, 11)), np.random.default_rng(0))
    assert (drawn.shape, drawn.dtype.name.replace("_", "")) == ((7, 11), dtype)


def test_a_given_array_is_fed_as_it_is(tmp_path):
    array = np.arange(210, dtype=np.float32).reshape(SHAPE)
    fed = make_feeds(graph(tensor()), {"x": saved(tmp_path / "x.npy", array)}, 0)
    assert (fed["x"] == array).all()


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.zeros((2, 3, 7, 5), np.float32), r"shape \[2, 3, 7, 5\], the model takes \[2, 3, 5, 7\]"),
        (np.zeros(SHAPE, np.float64), "type float64, the model takes float32"),
    ],
)
def test_an_array_that_does_not_fit(tmp_path, array, problem):
    with pytest.raises(UnusableValueError, match=problem) as caught:
        read_input(tensor(), saved(tmp_path / "x.npy", array))
    assert str(caught.value).startswith("<input>: x=")


def test_no_such_input(tmp_path):
    with pytest.raises(UnusableValueError, match="<input>: the model has no input y; it has x"):
        make_feeds(graph(tensor()), {"y": tmp_path / "y.npy"}, 0)


@pytest.mark.parametrize("name", ["x.npy", "x.png"])
@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01"])
def test_an_unreadable_file(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnusableValueError, match=r"cannot be read .*; give a \.npy file or an image"):
        read_input(tensor(), path)


HEADER = "{'descr': '<U1', 'fortran_order': False, 'shape': (2,), }"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(2,)", "((2,)"),  # numpy reads the header as Python: a TokenError
        ("<U1", "<,f4"),  # a SyntaxError
        ("(2,)", f"({'9' * 30},)"),  # an OverflowError
        ("", ""),  # letters beyond Unicode: a SystemError
    ],
)
def test_an_array_whose_header_or_letters_are_broken(tmp_path, old, new):
    header = HEADER.replace(old, new).ljust(117) + "\n"
    (path := tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + b"\xff\x7f\xff\x7f" * 2)
    with pytest.raises(UnusableValueError, match=r"x\.npy: cannot be read"):
        read_input(tensor(), path)


def test_a_missing_file(tmp_path):
    with pytest.raises(UnusableValueError, match="no such file"):
        read_input(tensor(), tmp_path / "x.npy")
    with pytest.raises(UnusableValueError, match="File name too long"):
        read_input(tensor(), tmp_path / ("x" * 5000))


def test_several_arrays(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(2), b=np.zeros(2))
    with pytest.raises(UnusableValueError, match="holds several arrays; save one"):
        read_input(tensor(), tmp_path / "x.npz")


def test_pickled_objects_are_not_run(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UnusableValueError, match=r"holds Python objects, .*numpy\.save\(FILE, array\.astype\('U'\)\)"):
        read_input(tensor("string", (1,)), tmp_path / "x.npy")


def test_text_is_read_as_the_runtime_takes_it(tmp_path):
    given = saved(tmp_path / "x.npy", np.array([["red", "é"], ["", "blue"]]))
    read = read_input(tensor("string", (2, 2)), given)
    assert read.dtype == object
    assert read.tolist() == [["red", "é"], ["", "blue"]]
    with pytest.raises(UnusableValueError, match="the model takes float32"):
        read_input(tensor(shape=(2, 2)), given)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(UnusableValueError, match=r"is not a file; give a \.npy file"):
        read_input(tensor(), tmp_path / "x.npy")


ENCODERS = {
    "LabelEncoder": {"keys_strings": ["red", "blue"], "values_int64s": [3, 5]},
    "OneHotEncoder": {"cats_strings": ["red", "blue"], "zeros": 0},
    "CategoryMapper": {"cats_strings": ["red", "blue"], "cats_int64s": [0, 1], "default_int64": -1},
}


@pytest.mark.parametrize("op_type", ENCODERS)
def test_text_is_drawn_from_the_categories_that_the_model_names(tmp_path, op_type):
    """The encoder stands behind a view, and refuses what it does not know if ``zeros`` is 0."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"], name="flat", axis=0),
        helper.make_node(op_type, ["flat"], ["y"], name="encoder", domain="ai.onnx.ml", **ENCODERS[op_type]),
    ]
    kind = TensorProto.FLOAT if op_type == "OneHotEncoder" else TensorProto.INT64
    ends = [
        helper.make_tensor_value_info("x", TensorProto.STRING, [3, 7]),
        helper.make_tensor_value_info("y", kind, None),
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)],
    )
    onnx.save(made, tmp_path / "m.onnx")
    feeds = make_feeds(load_model(tmp_path / "m.onnx", {}).graph, {}, 0)
    assert feeds["x"].shape == (3, 7)
    assert set(feeds["x"].ravel()) == {"red", "blue"}
    session = create_session(tmp_path / "m.onnx", SessionSettings(1))
    assert session.run(None, feeds)[0].shape[1] == 21


def test_integers_are_drawn_from_named_categories_and_not_from_a_table_that_they_index():
    encoder = Node("hot", "OneHotEncoder", "ai.onnx.ml", ("x",), ("y",), {"cats_int64s": [11, 13]})
    named = Graph((encoder,), {"x": tensor("int64", (17,)), "y": tensor(name="y")}, ("y",))
    assert set(make_feeds(named, {}, 0)["x"]) == {11, 13}
    lookup = Node("lookup", "Gather", "", ("table", "x"), ("rows",))
    label = Node("label", "LabelEncoder", "ai.onnx.ml", ("rows",), ("y",), {"keys_int64s": [11, 13]})
    indexed = Graph((lookup, label), {"x": tensor("int64", (17,)), "y": tensor(name="y")}, ("y",))
    assert set(make_feeds(indexed, {}, 0)["x"]) == {0, 1}


def test_a_missing_locale_is_named_with_its_remedy(tmp_path):
    node = helper.make_node("StringNormalizer", ["x"], ["y"], name="lower", case_change_action="LOWER", locale="xx_YY")
    ends = [helper.make_tensor_value_info(name, TensorProto.STRING, [3]) for name in "xy"]
    made = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:]), ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(
        PipelineError, match=r"locale with name:xx_YY.*; this host lacks the locale: install it"
    ) as caught:
        create_session(tmp_path / "m.onnx", SessionSettings(1))
    assert "string_normalizer.cc" not in str(caught.value)


def test_an_image_of_one_colour_is_normalized_by_channel(tmp_path):
    Image.new("RGB", (19, 11), (51, 102, 255)).save(tmp_path / "x.png")  # 0.2, 0.4, 1.0
    fed = read_input(tensor(), tmp_path / "x.png")
    assert (fed.shape, fed.dtype) == (SHAPE, np.float32)
    for channel, value in enumerate([(0.2 - 0.485) / 0.229, (0.4 - 0.456) / 0.224, (1.0 - 0.406) / 0.225]):
        assert fed[:, channel] == pytest.approx(value, abs=1e-5)


def test_an_image_is_resized_and_cropped_from_its_middle(tmp_path):
    # 448×256 for a crop of 224²: the shorter side is 256 already; columns 112 … 335 stay, rows 16 … 239.
    pixels = np.zeros((256, 448, 3), np.uint8)
    pixels[16, 112] = pixels[239, 335] = 255
    pixels[15, :] = pixels[:, 111] = pixels[240, :] = pixels[:, 336] = 128
    Image.fromarray(pixels).save(tmp_path / "x.png")
    red = read_input(tensor(shape=(1, 3, 224, 224)), tmp_path / "x.png")[0, 0]
    black, white = (0 - 0.485) / 0.229, (1 - 0.485) / 0.229
    assert red[0, 0] == red[-1, -1] == pytest.approx(white, abs=1e-5)
    assert np.sort(red.ravel())[:-2] == pytest.approx(black, abs=1e-5)  # all but those two


@pytest.mark.parametrize("shape", [(2, 1, 5, 7), (3, 5, 7)])
def test_an_image_needs_three_channels(tmp_path, shape):
    Image.new("RGB", (7, 5)).save(tmp_path / "x.png")
    with pytest.raises(UnusableValueError, match=r"an image needs an input of shape \(N, 3, H, W\)"):
        read_input(tensor(shape=shape), tmp_path / "x.png")
