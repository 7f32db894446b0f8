"""A perceptron that numpy trains in a moment, as an ONNX model with samples and their classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests.support.models.onnx_models import model

FEATURES, HIDDEN, CLASSES = 16, 24, 6


def clouds(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points around one centre for each class, near enough to each other that some are taken for another."""
    centres = np.random.default_rng(99).standard_normal((CLASSES, FEATURES))
    random = np.random.default_rng(seed)
    classes = random.integers(0, CLASSES, count)
    points = centres[classes] + 0.9 * random.standard_normal((count, FEATURES))
    return points.astype(np.float32), classes


def trained_weights(steps: int = 200, rate: float = 0.5) -> list[np.ndarray]:
    """Train by gradient descent on the cross entropy; weights and biases of both layers."""
    random, (x, classes) = np.random.default_rng(1), clouds(600, seed=1)
    first, second = random.normal(0, 0.3, (FEATURES, HIDDEN)), random.normal(0, 0.3, (HIDDEN, CLASSES))
    bias, offset = np.zeros(HIDDEN), np.zeros(CLASSES)
    wanted = np.eye(CLASSES)[classes]
    for _ in range(steps):
        hidden = np.maximum(x @ first + bias, 0)
        scores = hidden @ second + offset
        powers = np.exp(scores - scores.max(1, keepdims=True))
        error = (powers / powers.sum(1, keepdims=True) - wanted) / len(x)
        behind = (error @ second.T) * (hidden > 0)
        second -= rate * hidden.T @ error
        offset -= rate * error.sum(0)
        first -= rate * x.T @ behind
        bias -= rate * behind.sum(0)
    return [array.astype(np.float32) for array in (first, bias, second, offset)]


def perceptron(outlier: float = 1.0) -> onnx.ModelProto:
    """Return the trained network.

    Args:
        outlier: factor on the first hidden channel's weights, which a division behind them undoes: the function stays
            the same, and the range of the weights grows.
    """
    first, bias, second, offset = trained_weights()
    factors = np.ones(HIDDEN, np.float32)
    factors[0] = outlier
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["product"], "first"),
        helper.make_node("Div", ["product", "factors"], ["scaled"], "undo"),
        helper.make_node("Add", ["scaled", "bias"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["hidden"], "relu"),
        helper.make_node("MatMul", ["hidden", "second"], ["last"], "second"),
        helper.make_node("Add", ["last", "offset"], ["scores"], "offset_add"),
    ]
    weights = {"first": first * factors, "bias": bias, "second": second, "offset": offset, "factors": factors}
    return model(nodes, {"x": ["N", FEATURES]}, {"scores": ["N", CLASSES]}, weights)


def saved(folder: Path, count: int = 120, *, outlier: float = 1.0) -> tuple[Path, Path]:
    """Write the network and samples with labels that it was not trained on; return both paths."""
    onnx.save(perceptron(outlier), folder / "net.onnx")
    points, classes = clouds(count, seed=2)
    np.savez(folder / "samples.npz", x=points, labels=classes)
    return folder / "net.onnx", folder / "samples.npz"
