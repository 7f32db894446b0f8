"""Shapes of ai.onnx.ml operators with bound dimensions, against what ONNX Runtime returns."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from common.onnx_graph.load import load_model
from tests.support.models.onnx_models import IR_VERSION

ML, ROWS, FEATURES = "ai.onnx.ml", 7, 5
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
# One tree of a root and two leaves, which decides by feature 2.
TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}


def leaves(kind, targets):
    """Weights of the leaves, for several targets or classes."""
    of = [(leaf, target) for leaf in (1, 2) for target in range(targets)]
    return {
        f"{kind}_treeids": [0] * len(of),
        f"{kind}_nodeids": [leaf for leaf, _ in of],
        f"{kind}_ids": [target for _, target in of],
        f"{kind}_weights": [0.25] * len(of),
    }


VECTORS = {
    "support_vectors": [0.5] * 2 * FEATURES,
    "coefficients": [1.0, -1.0],
    "rho": [0.0],
    "n_supports": 2,
    "kernel_params": [0.0, 0.0, 3.0],
}
CASES = {
    "Scaler": ({"offset": [1.0] * FEATURES, "scale": [2.0] * FEATURES}, [FLOAT]),
    "Normalizer": ({"norm": "L2"}, [FLOAT]),
    "Imputer": ({"imputed_value_floats": [0.0] * FEATURES, "replaced_value_float": 9.0}, [FLOAT]),
    "Binarizer": ({"threshold": 0.5}, [FLOAT]),
    "FeatureVectorizer": ({"inputdimensions": [FEATURES]}, [FLOAT]),
    "LinearRegressor": ({"coefficients": [1.0] * 3 * FEATURES, "intercepts": [0.0] * 3, "targets": 3}, [FLOAT]),
    "SVMRegressor": ({**VECTORS, "kernel_type": "LINEAR"}, [FLOAT]),
    "TreeEnsembleRegressor": ({**TREE, **leaves("target", 3), "n_targets": 3}, [FLOAT]),
    "TreeEnsembleClassifier": ({**TREE, **leaves("class", 3), "classlabels_int64s": [3, 5, 7]}, [INT64, FLOAT]),
    "TreeEnsembleClassifier texts": (
        {**TREE, **leaves("class", 3), "classlabels_strings": ["a", "b", "c"]},
        [STRING, FLOAT],
    ),
}


def tabular(op_type, attributes, types, rows):
    """A model of one operator over samples of five features."""
    names = [f"y{index}" for index in range(len(types))]
    node = helper.make_node(op_type.split()[0], ["x"], names, name="node", domain=ML, **attributes)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, types, strict=True)]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", FLOAT, [rows, FEATURES])], outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


@pytest.mark.parametrize("op_type", CASES)
def test_shapes_are_those_of_the_runtime_and_depend_on_no_data(tmp_path, op_type):
    proto = tabular(op_type, *CASES[op_type], "rows")
    onnx.save(proto, tmp_path / "m.onnx")
    found = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": np.ones((ROWS, FEATURES), np.float32)})
    loaded = load_model(tmp_path / "m.onnx", {"rows": ROWS})
    tensors = [loaded.graph.tensors[name] for name in loaded.graph.outputs]
    assert [tensor.shape for tensor in tensors] == [result.shape for result in found]
    assert [tensor.dtype == "string" for tensor in tensors] == [result.dtype.hasobject for result in found]
    assert loaded.bounds is None


@pytest.mark.parametrize("op_type", CASES)
def test_unbound_rows_stay_a_symbol(tmp_path, op_type):
    onnx.save(tabular(op_type, *CASES[op_type], "rows"), tmp_path / "m.onnx")
    graph = load_model(tmp_path / "m.onnx", {}, symbolic=True).graph
    assert all(str(graph.tensors[name].shape[0]) == "rows" for name in graph.outputs)


@pytest.mark.parametrize(("stopwords", "expected"), [([], (ROWS,)), (["the"], (None,))])
def test_strings_without_stop_words_keep_their_number(tmp_path, stopwords, expected):
    attributes = {"stopwords": stopwords} if stopwords else {}
    node = helper.make_node("StringNormalizer", ["x"], ["y"], name="node", **attributes)
    values = [helper.make_tensor_value_info(name, STRING, shape) for name, shape in (("x", [ROWS]), ("y", None))]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx", {}).graph.tensors["y"].shape == expected
