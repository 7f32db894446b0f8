"""Classical machine learning (ai.onnx.ml), where ONNX's own inference says nothing, and normalized strings.

Source of the definitions: onnx.ai/onnx/operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from common.graph import Dim
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, UnfitError, rule
from common.operators import MACHINE_LEARNING, ONNX

ML = (MACHINE_LEARNING,)


def _samples(call: OperatorCall) -> Dim:
    """Return the number of samples: a vector of features is one of them."""
    shape = call.shape(0)
    if shape is None:
        return None
    if len(shape) not in (1, 2):
        raise UnfitError
    return shape[0] if len(shape) == 2 else 1


def _items(call: OperatorCall, name: str) -> Sequence[object]:
    """Items of a list attribute; none where the node leaves it out."""
    value = call.attribute(name, ())
    if not isinstance(value, (list, tuple)):
        raise UnfitError
    return value


@rule("Scaler", "Normalizer", domains=ML)
def scaled(call: OperatorCall) -> list[Output]:
    """Return one float per feature."""
    return [(TensorProto.FLOAT, call.shape(0))]


@rule("Imputer", domains=ML)
def imputed(call: OperatorCall) -> list[Output]:
    """Return the features, some of them replaced."""
    return [call.same(0)]


@rule("FeatureVectorizer", domains=ML)
def feature_vectorizer(call: OperatorCall) -> list[Output]:
    """Return the features of all operands side by side."""
    return [(TensorProto.FLOAT, (_samples(call), sum(call.integers("inputdimensions"))))]


@rule("TreeEnsembleClassifier", domains=ML)
def tree_ensemble_classifier(call: OperatorCall) -> list[Output]:
    """Return one label per sample, and a score per class."""
    texts, samples = _items(call, "classlabels_strings"), _samples(call)
    classes = len(texts or _items(call, "classlabels_int64s"))
    return [(TensorProto.STRING if texts else TensorProto.INT64, (samples,)), (TensorProto.FLOAT, (samples, classes))]


@rule("LinearRegressor", domains=ML)
def linear_regressor(call: OperatorCall) -> list[Output]:
    """Return a float per target."""
    return [(TensorProto.FLOAT, (_samples(call), call.integer("targets", 1)))]


@rule("SVMRegressor", domains=ML)
def svm_regressor(call: OperatorCall) -> list[Output]:
    """Return a float."""
    return [(TensorProto.FLOAT, (_samples(call), 1))]


@rule("TreeEnsembleRegressor", domains=ML)
def tree_ensemble_regressor(call: OperatorCall) -> list[Output]:
    """Return a float per target."""
    return [(TensorProto.FLOAT, (_samples(call), call.integer("n_targets", 1)))]


@rule("StringNormalizer", domains=(ONNX,))
def string_normalizer(call: OperatorCall) -> list[Output]:
    """Return the strings; how many are left depends on them where there are stop words."""
    shape = call.shape(0)
    if shape and _items(call, "stopwords"):
        shape = (*shape[:-1], None)
    return [(TensorProto.STRING, shape)]
