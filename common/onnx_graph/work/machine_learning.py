"""Classical machine learning (ai.onnx.ml): linear models and support vectors are contractions over the features.

Trees are not counted: how deep a sample goes depends on its values. Source of the definitions: onnx.ai/onnx/operators.
"""

from __future__ import annotations

from math import prod

from common.onnx_graph.work.registry import Cost, Gemm, Operation, contraction, formula
from common.operators import MACHINE_LEARNING

# FLOPs per score of what the attribute ``post_transform`` names.
POST_TRANSFORM = {"NONE": 0, "LOGISTIC": 4, "SOFTMAX": 5, "SOFTMAX_ZERO": 5, "PROBIT": 1}
# FLOPs per support vector and sample beyond the dot product.
KERNEL = {"LINEAR": 0, "POLY": 3, "RBF": 3, "SIGMOID": 3}


@formula("LinearClassifier", "LinearRegressor", domains=(MACHINE_LEARNING,))
def count_linear(operation: Operation) -> Cost:
    """Count a product of (samples × features) by (features × targets); an intercept and a post-transform per score."""
    *samples, features = operation.shape(0, least=1)
    targets = operation.quotient(len(operation.items("coefficients")), features)
    intercepts = bool(operation.items("intercepts"))
    scores = prod(samples) * targets
    extra = (intercepts + operation.choice("post_transform", POST_TRANSFORM, "NONE")) * scores
    return contraction(Gemm(1, prod(samples), features, targets), extra)


@formula("SVMClassifier", "SVMRegressor", domains=(MACHINE_LEARNING,))
def count_support_vectors(operation: Operation) -> Cost:
    """Each sample meets each support vector (a dot product and its kernel), and each vector's coefficients.

    A model without support vectors is a linear one. Votes and probabilities of a classifier are not counted.
    """
    samples = prod(operation.shape(0)[:-1])
    vectors, coefficients = (len(operation.items(name)) for name in ("support_vectors", "coefficients"))
    features = operation.dim(0, -1)
    kernel = operation.choice("kernel_type", KERNEL, "LINEAR")
    extra = (kernel * operation.quotient(vectors, features) + len(operation.items("rho"))) * samples
    return Cost(macs=samples * (vectors + coefficients), other_flops=extra)
