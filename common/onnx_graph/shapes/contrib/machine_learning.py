"""Classical machine learning (ai.onnx.ml), where ONNX's own inference says nothing, and normalized strings."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from common.graphs.graph import Dim
from common.graphs.operators import MACHINE_LEARNING, ONNX
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, UnfitError, rule

ML = (MACHINE_LEARNING,)
TARGETS = {"LinearRegressor": "targets", "TreeEnsembleRegressor": "n_targets", "SVMRegressor": ""}  # their number


def _samples(call: OperatorCall) -> Dim:
    """Return the number of samples: a vector of features is one of them."""
    shape = call.shape(0)
    if shape is None:
        return None
    if len(shape) not in (1, 2):
        raise UnfitError
    return shape[0] if len(shape) == 2 else 1


def _items(call: OperatorCall, name: str) -> Sequence[object]:
    """Return the items of a list attribute; none where the node leaves it out."""
    value = call.attribute(name, ())
    if not isinstance(value, (list, tuple)):
        raise UnfitError
    return value


@rule("Scaler", "Normalizer", "Imputer", domains=ML)
def scaled(call: OperatorCall) -> list[Output]:
    """Return one float per feature; an Imputer keeps their type."""
    is_kept = call.node.op_type == "Imputer"
    return [(call.element_type(0) if is_kept else TensorProto.FLOAT, call.shape(0))]


@rule("FeatureVectorizer", domains=ML)
def feature_vectorizer(call: OperatorCall) -> list[Output]:
    return [(TensorProto.FLOAT, (_samples(call), sum(call.integers("inputdimensions"))))]


@rule("TreeEnsembleClassifier", domains=ML)
def tree_ensemble_classifier(call: OperatorCall) -> list[Output]:
    """Return one label per sample, and a score per class."""
    texts, samples = _items(call, "classlabels_strings"), _samples(call)
    classes = len(texts or _items(call, "classlabels_int64s"))
    return [(TensorProto.STRING if texts else TensorProto.INT64, (samples,)), (TensorProto.FLOAT, (samples, classes))]


@rule(*TARGETS, domains=ML)
def regressor(call: OperatorCall) -> list[Output]:
    """Return a float per target."""
    attribute = TARGETS[call.node.op_type]
    return [(TensorProto.FLOAT, (_samples(call), call.integer(attribute, 1) if attribute else 1))]


@rule("StringNormalizer", domains=(ONNX,))
def string_normalizer(call: OperatorCall) -> list[Output]:
    """Return the strings; how many are left depends on them where there are stop words."""
    shape = call.shape(0)
    if shape and _items(call, "stopwords"):
        shape = (*shape[:-1], None)
    return [(TensorProto.STRING, shape)]
