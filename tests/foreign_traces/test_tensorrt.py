"""Profiles of TensorRT, in the shape of NVIDIA's own examples, and what can be wrong with them."""

import json

import pytest

from common.foreign_traces.owners import owners
from common.foreign_traces.readers.tensorrt import read_tensorrt_profile
from common.messages.errors import PipelineError
from tests.support.profiles.foreign_graphs import graph_of

NAMES = (
    "Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1",
    "Conv_0 + Relu_1",
    "PWN(PWN(/a/Sigmoid), /a/Mul)",
    "{ForeignNode[/b/MatMul.../c/Add]}",
    "reshape_after_Gemm_9",
)
TIMES_MS = (0.007, 0.05, 0.011, 0.13, 0.002)
RUNS = 7
METADATA = "[ONNX Layer: stem]\x1e[ONNX Layer: act]"


def entries(names=NAMES, times=TIMES_MS, runs=RUNS):
    shares = [100 * time / sum(times) for time in times]
    fields = zip(names, times, shares, strict=True)
    return [
        {"count": runs},
        *(
            {"name": name, "timeMs": runs * time, "averageMs": time, "medianMs": time / 2, "percentage": share}
            for name, time, share in fields
        ),
    ]


def written(tmp_path, content, name="profile.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_times_and_names(tmp_path):
    profile = read_tensorrt_profile(written(tmp_path, entries()), None)
    reformat, conv, pointwise, subgraph, reshape = profile.layers
    assert [layer.mean_us for layer in profile.layers] == [pytest.approx(1000 * time) for time in TIMES_MS]
    assert conv.median_us == pytest.approx(25.0)
    assert (profile.run_count, profile.is_of_device) == (RUNS, True)
    assert (reformat.serves, reshape.serves[0]) == (("Conv_0 + Relu_1", "Conv_0", "Relu_1"), "Gemm_9")
    assert conv.sources == (("Conv_0",), ("Relu_1",))
    assert [readings[-1] for readings in pointwise.sources] == ["/a/Sigmoid", "/a/Mul"]
    assert (subgraph.sources, subgraph.ends_with) == (("/b/MatMul",), ("/c/Add",))


def test_names_before_tensorrt_8_and_of_the_dla(tmp_path):
    """In the forms of the profiles in ismetdagli/HaX-CoNN (GoogLeNet on an Xavier)."""
    names = (
        "data to nvm",
        "{conv1/7x7_s2,conv1/relu_7x7,pool1}",
        "{conv1/7x7_s2,conv1/relu_7x7,pool1} output reformatter 0",
        "data copy finish",
        "a + b input reformatter 0",
        "a + b || c",
        "(Unnamed Layer* 10) [Convolution]_output from nvm",
        "/q/QuantizeLinear_clone_1",
        "squeeze_after_a",
    )
    layers = read_tensorrt_profile(written(tmp_path, entries(names, (1.0,) * len(names))), None).layers
    assert [layer.serves for layer in layers if layer.serves] == [
        ("data",),
        (names[1], "conv1/7x7_s2", "conv1/relu_7x7", "pool1"),
        ("data",),
        ("a + b", "a", "b"),
        ("(Unnamed Layer* 10) [Convolution]_output", "Unnamed Layer* 10) [Convolution]_output"),
        ("a",),
    ]
    assert layers[1].sources == ("conv1/7x7_s2", "conv1/relu_7x7", "pool1")
    assert layers[5].sources == (("a",), ("b",), ("c",))
    assert layers[7].sources[0][-1] == "/q/QuantizeLinear"


def test_names_of_tensorrt_8_and_10(tmp_path):
    """In the forms of NVIDIA's own example (a YOLO with quantizers) and of engines that its compiler Myelin made."""
    names = (
        "a.weight + /a/QuantizeLinear + /a/Conv + PWN(/a/relu/LeakyRelu)",
        "/neck/Concat_/a/Conv:0_clone_0 copy",
        "639 copy",
        "/b_0/MatMul_myl109_2",
        "__myl_MulMaxSubExpSum_myl109_3",
    )
    path = written(tmp_path, entries(names, (5.0, 1.0, 1.0, 3.0, 2.0)))
    graph = graph_of(
        ("QuantizeLinear", "/a/QuantizeLinear", ("x",)),
        ("Conv", "/a/Conv", ("/a/QuantizeLinear:0", "w")),
        ("LeakyRelu", "/a/relu/LeakyRelu", ("/a/Conv:0",)),
        ("MatMul", "/b.0/MatMul", ("/a/relu/LeakyRelu:0", "w")),
        ("Softmax", "/b.0/Softmax", ("/b.0/MatMul:0",)),
        outputs=["/b.0/Softmax:0"],
    )
    owned = owners(path, graph, read_tensorrt_profile(path, None))
    assert owned.owner["/b.0/MatMul"] == names[3]
    assert owned.served == {names[1]: names[0], names[2]: ""}
    assert owned.matched.contraction_share == 1.0
    assert owned.matched.time_share == pytest.approx((5 + 1 + 3) / 12)


def test_layer_information_tells_types_nodes_and_shapes(tmp_path):
    output = {"Name": "t", "Dimensions": [5, 7], "Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}
    layers = [
        {"Name": NAMES[1], "LayerType": "CaskConvolution", "Outputs": [output], "Metadata": METADATA},
        NAMES[3],
    ]
    information = written(tmp_path, {"Layers": layers, "Bindings": ["x", "y"]}, "layers.json")
    profile = read_tensorrt_profile(written(tmp_path, entries()), information)
    conv = profile.layers[1]
    assert (conv.layer_type, conv.dtype) == ("CaskConvolution", "float16")
    assert conv.sources[:2] == ("stem", "act")
    assert conv.sources[-1] == "t"
    assert profile.shapes == {"t": (5, 7)}
    assert profile.layers[3].layer_type == "ForeignNode"


def test_without_medians_as_older_versions_write_it(tmp_path):
    old = [{key: value for key, value in entry.items() if key != "medianMs"} for entry in entries()]
    assert {layer.median_us for layer in read_tensorrt_profile(written(tmp_path, old), None).layers} == {None}


def test_layers_of_one_name_stay_apart(tmp_path):
    twice = entries(("a", "a", "a #2"), (1.0, 2.0, 3.0))
    layers = read_tensorrt_profile(written(tmp_path, twice), None).layers
    assert len({layer.name for layer in layers}) == 3
    assert [layer.mean_us for layer in layers] == [1000.0, 2000.0, 3000.0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", "holds no list of layers"),
        ("[{}", "is cut short"),
        (json.dumps(entries())[:-40], "is cut short"),
        (entries()[:1], "does not begin with the count of runs"),
        (entries()[1:], "does not begin with the count of runs"),
        (entries(runs=0), "does not begin with the count of runs"),
        (entries(runs=True), "does not begin with the count of runs"),
        (entries()[:-2], r"the shares of its layers add up to 34\.0 %, not 100 %"),
        ([*entries(), *entries()[1:]], r"add up to 200\.0 %"),
        (entries(times=(1, 2, -3, 4, 5)), "is -0?3?.*not a time"),
        (json.dumps(entries()).replace("0.05,", "NaN,"), "is no JSON"),
        ([{"count": 1}, {"name": "a", "averageMs": "1"}], "averageMs of 'a' is '1', not a time"),
        ([{"count": 1}, {"name": "a"}], "the layer 'a' has no averageMs"),
        ([{"count": 1}, {"averageMs": 1}], "has a layer without a name"),
        ([{"count": 1}, 3], "holds no list of layers"),
    ],
)
def test_profiles_that_cannot_be_used(tmp_path, content, problem):
    with pytest.raises(PipelineError, match=problem) as caught:
        read_tensorrt_profile(written(tmp_path, content), None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"Layers": ["other"]}, "has no layer of the profile"),
        ({"Bindings": []}, "has no list 'Layers'"),
        ({"Layers": [{"Name": NAMES[1], "Outputs": 3}]}, "are no list of tensors"),
        ({"Layers": [3]}, "holds no list of layers"),
    ],
)
def test_layer_information_that_cannot_be_used(tmp_path, content, problem):
    with pytest.raises(PipelineError, match=problem):
        read_tensorrt_profile(written(tmp_path, entries()), written(tmp_path, content, "layers.json"))


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(PipelineError, match=r"none\.json: cannot be read"):
        read_tensorrt_profile(tmp_path / "none.json", None)
