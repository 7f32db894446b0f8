"""The sizes that an error proposes for unbound dimensions can be used as they are."""

import json

import pytest
from onnx import TensorProto, helper

from common.onnx_graph.symbols.usual_sizes import usual_sizes


def image(*shape):
    return helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)


def ids(*shape):
    return helper.make_tensor_value_info("ids", TensorProto.INT64, shape)


PICTURE = image("batch", 3, "height", "width")


@pytest.mark.parametrize(
    ("stem", "height", "width"),
    [("model", 224, 224), ("vit-384", 384, 384), ("encoder-512x256", 512, 256), ("resnet152", 224, 224)],
)
def test_a_picture_has_the_size_of_the_model_s_name_or_the_usual_one(tmp_path, stem, height, width):
    sizes = usual_sizes(tmp_path / f"{stem}.onnx", [PICTURE], ["batch", "height", "width"])
    assert sizes == {"batch": 1, "height": height, "width": width}


@pytest.mark.parametrize(
    "size",
    [336, {"height": 336, "width": 336}, {"shortest_edge": 336}, [336, 336]],
    ids=lambda size: type(size).__name__,
)
def test_the_processor_s_size_goes_before_the_name_s(tmp_path, size):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 512, "crop_size": size}))
    sizes = usual_sizes(tmp_path / "vit-384.onnx", [PICTURE], ["height", "width"])
    assert sizes == {"height": 336, "width": 336}


def test_places_say_what_dimensions_without_a_name_are(tmp_path):
    inputs = [image(None, None, None, None), ids(None, None)]
    names = [f"image.{axis}" for axis in range(4)] + ["ids.0", "ids.1"]
    assert [*usual_sizes(tmp_path / "m.onnx", inputs, names).values()] == [1, 3, 224, 224, 1, 128]


def test_a_text_is_no_longer_than_the_model_takes(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 77}')
    assert usual_sizes(tmp_path / "m.onnx", [ids("batch", "sequence_length")], ["sequence_length"]) == {
        "sequence_length": 77
    }


def test_the_total_length_is_what_is_cached_and_what_is_new(tmp_path):
    names = ["past_sequence_length", "sequence_length", "total_sequence_length"]
    sizes = usual_sizes(tmp_path / "m.onnx", [ids("batch", name) for name in names], names)
    assert sizes["total_sequence_length"] == sizes["past_sequence_length"] + sizes["sequence_length"]


@pytest.mark.parametrize(
    "text", ["", "[", "[]", '{"size": true}', '{"size": -1}', '{"size": {"height": "x"}}', "[" * 99_999]
)
def test_a_processor_that_nobody_can_read_says_nothing(tmp_path, text):
    (tmp_path / "preprocessor_config.json").write_text(text)
    assert usual_sizes(tmp_path / "m.onnx", [PICTURE], ["height"]) == {"height": 224}
