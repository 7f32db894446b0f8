"""Messages of KServe's v2 protocol against bytes that were written by hand from its specification."""

import json
import struct

import numpy as np
import pytest

from common.load.endpoint.by_http import answers_of, binary_request, json_request
from common.load.endpoint.tensors import (
    AnsweredTensor,
    ModelMetadata,
    TensorForm,
    WireTensor,
    json_values,
    metadata_of,
    raw_bytes,
    require_answers,
)
from common.messages.errors import PipelineError

IMAGE, NAMES = TensorForm("image", "FP32", (2, 2)), TensorForm("names", "BYTES", (2, 1))
ROWS = [np.array([1.5, -2], np.float32), np.array([0, 0.25], np.float32)]
TEXTS = [np.array(["ab"], object), np.array(["µ"], object)]
FLOATS = bytes.fromhex("0000c03f 000000c0 00000000 0000803e")  # 1.5, −2, 0, 0.25 as little-endian IEEE 754
STRINGS = b"\x02\0\0\0ab" + b"\x02\0\0\0\xc2\xb5"  # each with its length before it, 4 bytes little-endian


def test_a_request_as_text_is_that_of_the_specification():
    tensors = [
        WireTensor(IMAGE, [json_values(row) for row in ROWS]),
        WireTensor(NAMES, [json_values(row) for row in TEXTS]),
    ]
    body, length = json_request(tensors)
    assert length == len(body)
    assert json.loads(body) == {
        "inputs": [
            {"name": "image", "shape": [2, 2], "datatype": "FP32", "data": [1.5, -2, 0, 0.25]},
            {"name": "names", "shape": [2, 1], "datatype": "BYTES", "data": ["ab", "µ"]},
        ]
    }


def test_a_request_as_bytes_has_them_after_its_json_and_their_sizes_in_it():
    tensors = [
        WireTensor(IMAGE, [raw_bytes(row) for row in ROWS]),
        WireTensor(NAMES, [raw_bytes(row) for row in TEXTS]),
    ]
    body, length = binary_request(tensors)
    assert body[length:] == FLOATS + STRINGS
    assert json.loads(body[:length]) == {
        "inputs": [
            {"name": "image", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}},
            {"name": "names", "shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 12}},
        ],
        "parameters": {"binary_data_output": True},
    }


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([True, False]), b"\1\0"),
        (np.array([258], ">i2"), b"\2\1"),
        (np.array([[1, 2], [3, 4]], np.uint8).T, b"\1\3\2\4"),
        (np.array([1], np.float16), b"\0\x3c"),
        (np.array([], np.int64), b""),
    ],
)
def test_values_are_little_endian_in_row_order(array, expected):
    assert raw_bytes(array) == expected


def test_an_answer_as_bytes():
    head = b'{"model_name": "double", "outputs": [{"name": "twice", "datatype": "FP32", "shape": [2, 2], '
    head += b'"parameters": {"binary_data_size": 16}}]}'
    form = TensorForm("twice", "FP32", (2, 2))
    assert answers_of(head + FLOATS, str(len(head))) == ("double", [AnsweredTensor(form, 16)])
    with pytest.raises(PipelineError, match="malformed answer: 15 bytes after the JSON"):
        answers_of(head + FLOATS[1:], str(len(head)))


def test_an_answer_as_text_may_be_nested():
    body = b'{"outputs": [{"name": "twice", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4]]}]}'
    assert answers_of(body, None) == ("", [AnsweredTensor(TensorForm("twice", "FP32", (2, 2)), None, 4)])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "no JSON object"),
        (b"{}", r"no outputs \(KeyError\)"),
        (b'{"outputs": 7}', r"no outputs \(TypeError\)"),
        (b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": ["x"], "data": []}]}', r"no outputs \(ValueError\)"),
        (b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}]}', r"no outputs \(KeyError\)"),
        (
            b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1e999], "data": []}]}',
            r"no outputs \(OverflowError\)",
        ),
    ],
)
def test_what_is_no_answer(body, problem):
    with pytest.raises(PipelineError, match=f"malformed answer: {problem}"):
        answers_of(body, None)


MODEL = ModelMetadata("double", "", (IMAGE,), (TensorForm("twice", "FP32", (-1, 2)),))


@pytest.mark.parametrize(
    ("name", "answer", "problem"),
    [
        ("triple", AnsweredTensor(TensorForm("twice", "FP32", (2, 2)), 16), "it is of model triple, not of double"),
        ("", AnsweredTensor(TensorForm("thrice", "FP32", (2, 2)), 16), "output twice is missing"),
        ("", AnsweredTensor(TensorForm("twice", "FP32", (1, 2)), 8), "output twice has 1 rows for 2 requests"),
        ("", AnsweredTensor(TensorForm("twice", "FP64", (2, 2)), 32), "output twice is FP64"),
        ("", AnsweredTensor(TensorForm("twice", "FP32", (2, 2)), 12), "output twice has 12 bytes for FP32"),
        ("", AnsweredTensor(TensorForm("twice", "FP32", (2, 2)), None, 3), "output twice has 3 values"),
    ],
)
def test_an_answer_that_is_not_of_the_request(name, answer, problem):
    require_answers(MODEL, "double", [AnsweredTensor(TensorForm("twice", "FP32", (2, 2)), 16)], 2)
    with pytest.raises(PipelineError, match=problem):
        require_answers(MODEL, name, [answer], 2)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "m", "inputs": 3, "outputs": []},
        {"name": "m", "inputs": [{"name": "x"}], "outputs": []},
        {"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [float("inf")]}], "outputs": []},
    ],
)
def test_what_is_no_metadata(fields):
    with pytest.raises(PipelineError, match="malformed answer: no metadata of a model"):
        metadata_of(fields)


# --- gRPC: fields by their numbers in grpc_predict_v2.proto ---------------------------------------------------------


def length_delimited(number, content):
    """A field of wire type 2: its tag, its length, its bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def test_messages_of_grpc_are_those_of_the_proto():
    pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed; make test-slow sets it up")
    from common.load.endpoint import by_grpc
    from common.load.endpoint.address import Address

    caller = by_grpc.GrpcCaller(Address("grpc", "127.0.0.1", 1), "m", "7", 1.0)
    tensor = length_delimited(1, b"image") + length_delimited(2, b"FP32") + length_delimited(3, b"\2\2")
    expected = length_delimited(1, b"m") + length_delimited(2, b"7") + length_delimited(5, tensor)
    expected += length_delimited(7, FLOATS)
    assert caller.request([WireTensor(IMAGE, [raw_bytes(row) for row in ROWS])]) == expected
    caller.close()
    output = length_delimited(1, b"twice") + length_delimited(2, b"FP32") + length_delimited(3, b"\2\2")
    response = by_grpc.require_grpc()[1].ModelInferResponse
    raw = length_delimited(1, b"double") + length_delimited(5, output) + length_delimited(6, FLOATS)
    form = TensorForm("twice", "FP32", (2, 2))
    assert by_grpc.answers_of(response.FromString(raw)) == ("double", [AnsweredTensor(form, 16)])
    typed = output + length_delimited(5, length_delimited(6, struct.pack("<4f", 1, 2, 3, 4)))  # fp32_contents
    assert by_grpc.answers_of(response.FromString(length_delimited(5, typed))) == ("", [AnsweredTensor(form, None, 4)])
    with pytest.raises(PipelineError, match="2 raw contents for 1 outputs"):
        by_grpc.answers_of(response.FromString(raw + length_delimited(6, b"")))
