"""Labels of executed nodes: the operator that does the work, short, and never the same for two nodes."""

import random

import pandas as pd
import pytest

from common.artifacts.frames import records
from common.view.node_labels import LABEL_WIDTH, label_nodes, labels_of, with_labels

CONV = ("Conv", "BatchNormalization", "Relu")


def fused(*names):
    """Source nodes whose types are the last parts of their names."""
    return [(name, name.rpartition("/")[2].partition("_")[0]) for name in names]


def label(executed, *names):
    return label_nodes({executed: fused(*names)})[executed]


@pytest.mark.parametrize(
    ("executed", "names", "text"),
    [
        (
            "/layer4/layer4.1/relu_1/Relu_output_0_nchwc",
            ("/layer4/layer4.1/conv2/Conv", "/layer4/layer4.1/bn2/BatchNormalization", "/layer4/layer4.1/relu_1/Relu"),
            "layer4.1/conv2",
        ),
        (
            "/layer4/layer4.0/downsample/downsample.1/BatchNormalization_output_0_nchwc",
            (
                "/layer4/layer4.0/downsample/downsample.0/Conv",
                "/layer4/layer4.0/downsample/downsample.1/BatchNormalization",
            ),
            "layer4.0/downsample.0",
        ),
        ("/relu/Relu_output_0_nchwc", ("/conv1/Conv", "/bn1/BatchNormalization", "/relu/Relu"), "conv1"),
        ("SkipLayerNormalization_token_2", ("/mlp/residual/Add", "/mlp/norm/LayerNormalization"), "mlp/norm"),
        ("q", ("/x/DequantizeLinear", "/x/conv/Conv", "/x/QuantizeLinear"), "x/conv"),
        ("fused Gemm_0", ("Gemm_0", "Relu_1"), "Gemm_0"),
        ("Transpose_token_1", ("/attn/Gather_4", "/attn/Squeeze_4"), "attn"),
        ("view", ("/a/Reshape", "/a/b/Mul"), "a/b"),
        ("BiasGelu", ("/l/dense/Add", "/l/act/act_fn/Div", "/l/act/act_fn/Erf"), "l/act_fn"),
    ],
)
def test_the_operator_that_does_the_work_names_the_node(executed, names, text):
    assert label(executed, *names) == text


def test_a_node_of_several_contractions_is_called_after_the_module_that_they_share():
    names = ("/enc/layer.3/self/query/MatMul", "/enc/layer.3/self/key/MatMul", "/enc/layer.3/self/Softmax")
    assert label("Attention_3", *names) == "layer.3/self"
    assert label("Attention", "MatMul_7", "MatMul_11") == "MatMul_7"


@pytest.mark.parametrize(
    ("executed", "text"),
    [
        ("ReorderOutput_token_57", "ReorderOutput"),
        ("/layer1/layer1.0/relu/Relu_output_0_nchwc", "layer1.0/relu"),
        ("/conv1/Conv_output_0_bn_nchwc", "conv1"),
        ("Conv_0", "Conv_0"),
        ("_nchwc", "_nchwc"),
        ("/", "/"),
        ("", ""),
        ("InsertedCast_input", "InsertedCast_input"),
    ],
)
def test_a_node_without_source_nodes_keeps_its_own_name_in_short(executed, text):
    assert label(executed) == text


def test_inserted_nodes_keep_their_numbers_where_those_tell_them_apart():
    names = ["ReorderOutput", "ReorderOutput_token_25", "ReorderInput_token_3"]
    assert [*label_nodes(dict.fromkeys(names, ())).values()] == [*names[:2], "ReorderInput"]


def test_a_module_stands_for_its_contraction_and_its_other_nodes_keep_their_operator():
    names = ["/self/key/MatMul", "/self/key/Add", "/self/MatMul", "/self/MatMul_1", "/self/out/Add", "/self/Softmax"]
    labels = label_nodes({name: fused(name) for name in names})
    assert [*labels.values()] == [
        "self/key",
        "self/key/Add",
        "self/MatMul",
        "self/MatMul_1",
        "self/out",
        "self/Softmax",
    ]


def test_parents_are_added_until_a_label_is_the_only_one():
    """The feed-forward networks of a T5: two encoder blocks, two decoder blocks."""
    names = [f"/{half}/block.{n}/ff/wo/MatMul" for half in ("encoder", "decoder") for n in (0, 1)]
    names += ["/encoder/block.0/ff/wi/MatMul", "/encoder/block.1/ff/wi/MatMul", "/lm_head/MatMul"]
    assert [*label_nodes({name: fused(name) for name in names}).values()] == [
        *("encoder/block.0/ff/wo", "encoder/block.1/ff/wo", "decoder/block.0/ff/wo", "decoder/block.1/ff/wo"),
        *("block.0/ff/wi", "block.1/ff/wi", "lm_head"),
    ]


def test_a_long_label_loses_its_middle_or_the_ends_of_its_parts_but_not_its_numbers():
    blocks = [f"/features/denseblock{b}/denselayer{n}/conv1/Conv" for b in (1, 2) for n in (1, 12)]
    names = [
        *blocks,
        "/encoder/layer.0/attention/output/dense/MatMul",
        "/encoder/layer.1/attention/output/dense/MatMul",
    ]
    assert [*label_nodes({name: fused(name) for name in names}).values()] == [
        *("denseblo…1/denselayer1/conv1", "denseblo…1/denselay…12/conv1"),
        *("denseblo…2/denselayer1/conv1", "denseblo…2/denselay…12/conv1"),
        *("layer.0/…/output/dense", "layer.1/…/output/dense"),
    ]


def test_what_no_path_tells_apart_is_numbered():
    same = fused("/attn/Gather_4")
    assert label_nodes({"a": same, "b": same, "c": same}) == {
        "a": "attn/Gather_4",
        "b": "attn/Gather_4 #2",
        "c": "attn/Gather_4 #3",
    }


@pytest.mark.parametrize("seed", range(60))
def test_labels_are_short_and_no_two_nodes_share_one(seed):
    draw = random.Random(seed)

    def name():
        return "".join(draw.choices("ab1._/C…# \n", k=draw.randrange(12)))

    def source():
        return name(), draw.choice([*CONV, ""])

    sources_of = {name(): [source() for _ in range(draw.randrange(4))] for _ in range(draw.randrange(40))}
    labels = label_nodes(sources_of, width=13)
    assert list(labels) == list(sources_of)
    assert len(set(labels.values())) == len(labels)
    assert all(len(text) <= 13 for text in labels.values())


def test_a_table_gives_its_columns_and_the_gap_keeps_its_name():
    table = pd.DataFrame(
        {
            "executed_node": ["/relu/Relu_output_0_nchwc", "ReorderOutput", "(gap)"],
            "row_kind": ["node", "inserted", "gap"],
            "source_nodes": [["/stem/Conv_3", "/relu/Relu"], [], []],
            "op_types": [["Conv", "Relu"], [], []],
        }
    )
    expected = {"/relu/Relu_output_0_nchwc": "stem", "ReorderOutput": "ReorderOutput", "(gap)": "(gap)"}
    assert labels_of(records(table)) == expected
    assert labels_of(records(table.drop(columns="op_types"))) == expected  # the names of source nodes tell their types
    names = table[["executed_node"]]
    assert labels_of(records(names)) == expected | {"/relu/Relu_output_0_nchwc": "relu"}


def test_names_in_a_text_become_labels_and_words_stay():
    labels = {"/a/Conv": "a", "/a/Conv_1": "a/Conv_1", "Gather": "Shape", "fused /b/MatMul": "b"}
    text = "/a/Conv_1: fused /b/MatMul waits for /a/Conv, a Gather; see out/a/Conv and /a/Conv/x"
    assert with_labels(text, labels) == "a/Conv_1: b waits for a, a Gather; see out/a/Conv and /a/Conv/x"
    assert with_labels(text, {}) == text
    assert max(map(len, labels.values())) <= LABEL_WIDTH
