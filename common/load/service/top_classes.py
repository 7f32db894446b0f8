"""Post-processing of a classifier: the classes with the highest scores, with their probabilities."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.messages.errors import UnusableValueError
from common.runtime.inputs.images import Array


@dataclass(frozen=True, slots=True)
class TopClasses:
    """The answer: so many classes per request, the likeliest first."""

    count: int

    stages = ("postprocess",)

    def answered(self, outputs: Sequence[object], request_count: int) -> tuple[int]:
        """Make the answers of a batch, and return what that took in ns.

        Raises:
            UnusableValueError: the first output has no scores of classes.
        """
        begin_ns = time.perf_counter_ns()
        scores = outputs[0]
        if not isinstance(scores, np.ndarray):
            raise _no_scores(self.count, "of a type that numpy lacks")
        top_classes(scores[:request_count], self.count)
        return (time.perf_counter_ns() - begin_ns,)


def top_classes(scores: Array, count: int) -> tuple[Array, Array]:
    """Return the classes with the highest scores of each row, and their probabilities by softmax, highest first.

    Raises:
        UnusableValueError: these are no rows of at least so many numbers.
    """
    is_row = scores.ndim >= 2 and all(size == 1 for size in scores.shape[2:])  # some end with a map of one pixel
    if not is_row or scores.shape[1] < count or scores.dtype.kind != "f":
        raise _no_scores(count, f"{scores.dtype} of shape {list(scores.shape)}")
    scores = scores.reshape(scores.shape[:2])
    kept = np.argpartition(scores, -count, axis=1)[:, -count:]
    order = np.argsort(-np.take_along_axis(scores, kept, 1), axis=1, kind="stable")
    classes = np.take_along_axis(kept, order, 1)
    exponents = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    shares = exponents / exponents.sum(axis=1, keepdims=True)
    return classes, np.take_along_axis(shares, classes, 1)


def _no_scores(count: int, output: str) -> UnusableValueError:
    remedy = "it takes a model whose first output is a row of at least so many scores for each request"
    return UnusableValueError("top_k", f"{count}, but the model's first output is {output}", remedy)
