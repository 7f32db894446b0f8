"""The models that are mutated: those of ``models/``, those of ONNX's own tests, and what neither of them has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.__main__ import BUILDERS
from tests.support.models import body_models
from tests.support.models.contrib_attention_cases import ATTENTION
from tests.support.models.contrib_cases import BLOCKED, CONVOLUTION, ELEMENTWISE, MATRIX, QUANTIZED, STRUCTURE, Case
from tests.support.models.one_node import element_type
from tests.support.models.onnx_models import INT64, Typed, model, weight

FLOAT, STRING, BOOL = TensorProto.FLOAT, TensorProto.STRING, TensorProto.BOOL
LARGEST = 60_000  # bytes: what is large takes long
ML = "ai.onnx.ml"


def seed_models() -> dict[str, onnx.ModelProto]:
    """Models by name; the order is fixed, because a case draws from them."""
    built = {name: build() for name, build in BUILDERS.items() if name.startswith("tiny-")}
    return {**built, **dict(_special())}


def backend_models() -> dict[str, onnx.ModelProto]:
    """Models of ONNX's own tests, nearly every operator with each of its attributes (this takes seconds)."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return {case.name: case.model for case in found if case.model.ByteSize() < LARGEST}


def contrib_models() -> dict[str, onnx.ModelProto]:
    """One node each of the operators that only ONNX Runtime knows."""
    cases = (*ATTENTION, *ELEMENTWISE, *QUANTIZED, *MATRIX, *CONVOLUTION, *BLOCKED, *STRUCTURE)
    return {f"{case}-{number}": _of_case(case) for number, case in enumerate(cases)}


def _of_case(case: Case) -> onnx.ModelProto:
    operands = {f"x{index}": np.asarray(array) for index, array in enumerate(case.operands) if array is not None}
    inputs = {name: Typed(element_type(array), array.shape) for name, array in operands.items()}
    outputs = {name: None for name in case.node.output if name}
    return model([case.node], inputs, outputs, opset=case.opset, domains=[case.domain])


def _node(op_type: str, inputs: str, outputs: str, domain: str = "", **attributes) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(","), outputs.split(","), f"{op_type}_0", domain=domain, **attributes)


def _special() -> Iterator[tuple[str, onnx.ModelProto]]:
    yield "strings", _strings()
    yield "trees", _trees()
    yield "classifier", _classifier()
    yield "sequences", _sequences()
    yield "optionals", _optionals()
    yield "quantized", _quantized()
    yield "qdq", _qdq()
    yield "shapes", _shapes()
    yield "detector", _detector()
    yield "sparse", _sparse()
    yield "external", _external()
    yield "loop", body_models.loop(scans=("state_out",), outputs="z,s")
    yield "branches", body_models.branches(body_models.NARROW, body_models.WIDE)
    yield "cycle", model([_node("Relu", "b", "a"), _node("Relu", "a", "b")], {"x": (3,)}, {"b": (3,)})
    yield (
        "half",
        model([_node("MatMul", "x,w", "y")], {"x": Typed(10, ("N", 5))}, {"y": None}, {"w": np.ones((5, 7), "f2")}),
    )


def _strings() -> onnx.ModelProto:
    nodes = [
        _node("StringNormalizer", "text", "lower", case_change_action="LOWER", stopwords=["the", "a"]),
        _node("LabelEncoder", "lower", "ids", ML, keys_strings=["x", "y"], values_int64s=[0, 1], default_int64=-1),
        _node("Cast", "ids", "y", to=FLOAT),
    ]
    return model(nodes, {"text": Typed(STRING, ("words",))}, {"y": None}, domains=[ML])


def _trees() -> onnx.ModelProto:
    trees = _node(
        "TreeEnsembleRegressor",
        "filled",
        "y",
        ML,
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[2, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.0, 2.0],
    )
    nodes = [
        _node("Scaler", "x", "scaled", ML, offset=[0.0] * 5, scale=[1.0] * 5),
        _node("Imputer", "scaled", "filled", ML, imputed_value_floats=[0.0], replaced_value_float=float("nan")),
        trees,
    ]
    return model(nodes, {"x": ("rows", 5)}, {"y": None}, domains=[ML])


def _classifier() -> onnx.ModelProto:
    nodes = [
        _node("OneHotEncoder", "name", "hot", ML, cats_strings=["a", "b", "c"], zeros=1),
        _node("FeatureVectorizer", "hot,x", "all", ML, inputdimensions=[3, 5]),
        _node("LinearClassifier", "all", "label,scores", ML, coefficients=[0.1] * 16, intercepts=[0.0, 1.0],
              classlabels_strings=["no", "yes"]),
        _node("ZipMap", "scores", "map", ML, classlabels_strings=["no", "yes"]),
    ]  # fmt: skip
    made = model(
        nodes, {"name": Typed(STRING, ("rows", 1)), "x": ("rows", 5)}, {"label": Typed(STRING, None)}, domains=[ML]
    )
    made.graph.output.add(name="map")
    return made


def _sequences() -> onnx.ModelProto:
    nodes = [
        _node("SplitToSequence", "x,sizes", "parts", axis=0),
        _node("SequenceAt", "parts,one", "part"),
        _node("SequenceInsert", "parts,part", "more"),
        _node("ConcatFromSequence", "more", "y", axis=0),
        _node("SequenceLength", "more", "length"),
    ]
    weights = {"sizes": np.array([2, 3]), "one": np.array(1)}
    return model(nodes, {"x": (5, "N")}, {"y": None, "length": Typed(INT64, ())}, weights)


def _optionals() -> onnx.ModelProto:
    nodes = [
        _node("OptionalHasElement", "maybe", "has"),
        _node("OptionalGetElement", "maybe", "x"),
        _node("Relu", "x", "y"),
    ]
    made = model(nodes, {}, {"y": None, "has": Typed(BOOL, ())}, opset=18)
    tensor = helper.make_tensor_type_proto(FLOAT, ("N", 3))
    made.graph.input.append(helper.make_value_info("maybe", helper.make_optional_type_proto(tensor)))
    return made


def _quantized() -> onnx.ModelProto:
    scale, zero = np.array(0.02, np.float32), np.array(3, np.uint8)
    nodes = [
        _node("QuantizeLinear", "x,s,z", "q"),
        _node("QLinearConv", "q,s,z,w,s,zw,s,z,b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        _node("DequantizeLinear", "c,s,z", "d"),
        _node("DynamicQuantizeLinear", "d", "e,es,ez"),
        _node("MatMulInteger", "e,m,ez", "y"),
    ]
    weights = {"s": scale, "z": zero, "w": np.ones((7, 3, 3, 3), np.int8), "zw": np.array(0, np.int8)}
    weights |= {"b": np.zeros(7, np.int32), "m": np.ones((11, 5), np.int8)}
    return model(nodes, {"x": ("N", 3, 5, 11)}, {"y": None}, weights)


def _qdq() -> onnx.ModelProto:
    nodes = [
        _node("QuantizeLinear", "x,s,z", "q"),
        _node("DequantizeLinear", "q,s,z", "xd"),
        _node("DequantizeLinear", "w,sw,zw", "wd", axis=1),
        _node("MatMul", "xd,wd", "y"),
    ]
    weights = {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8), "w": np.ones((5, 7), np.int8)}
    weights |= {"sw": np.full(7, 0.1, np.float32), "zw": np.zeros(7, np.int8)}
    return model(nodes, {"x": ("N", 5)}, {"y": None}, weights)


def _shapes() -> onnx.ModelProto:
    """A Reshape whose shape mixes constants and dimensions, a Range, a Tile, a Slice by computed ends."""
    nodes = [
        _node("Shape", "x", "s"),
        _node("Gather", "s,zero", "n"),
        _node("Unsqueeze", "n,axes", "n1"),
        _node("Concat", "n1,rest", "target", axis=0),
        _node("Reshape", "x,target", "r"),
        _node("Slice", "r,axes,n1,axes", "part"),
        _node("Expand", "part,target", "wide"),
        _node("ConstantOfShape", "n1", "zeros", value=numpy_helper.from_array(np.array([1.0], np.float32))),
        _node("Einsum", "wide,zeros", "y", equation="ijk,i->jk"),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1, 5])}
    return model(nodes, {"x": ("N", 3, 5)}, {"y": None}, weights)


def _detector() -> onnx.ModelProto:
    """Shapes that depend on the data: NonZero, TopK and NonMaxSuppression before a product."""
    nodes = [
        _node("NonMaxSuppression", "boxes,scores,most,iou", "chosen"),
        _node("Gather", "chosen,two", "rows", axis=1),
        _node("Gather", "features,rows", "kept"),
        _node("MatMul", "kept,w", "p"),
        _node("NonZero", "p", "places"),
        _node("Resize", "image,,scales", "y", mode="linear"),
    ]
    weights = {"most": np.array([7]), "iou": np.array([0.5], np.float32), "two": np.array(2), "w": weight(5, 7)}
    weights["scales"] = np.array([1, 1, 2, 1.5], np.float32)
    inputs = {"boxes": (1, "n", 4), "scores": (1, 1, "n"), "features": ("n", 5), "image": (1, 3, 5, 7)}
    return model(nodes, inputs, {"p": None, "places": Typed(INT64, None), "y": None}, weights)


def _sparse() -> onnx.ModelProto:
    made = model([_node("MatMul", "x,w", "y")], {"x": ("N", 5)}, {"y": None})
    values = helper.make_tensor("w", FLOAT, [2], [1.0, 2.0])
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, helper.make_tensor("i", INT64, [2], [3, 9]), [5, 7])
    )
    return made


def _external() -> onnx.ModelProto:
    """Weights and a target shape in a file beside the model."""
    made = model([_node("MatMul", "x,w", "p"), _node("Reshape", "p,t", "y")], {"x": ("N", 5)}, {"y": None}, {})
    for name, kind, dims, offset, length in (("w", FLOAT, (5, 7), 0, 140), ("t", INT64, (2,), 140, 16)):
        tensor = made.graph.initializer.add(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "case.data"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
    return made


EXTERNAL_CONTENT = np.ones((5, 7), np.float32).tobytes() + np.array([7, -1]).tobytes()
