"""Work on a request beside the model's run: its image is decoded, resized and normalized, its top classes are found."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.graphs.graph import Graph
from common.messages.errors import UnusableValueError
from common.runtime.inputs.image_files import checked_image, image_files, image_input
from common.runtime.inputs.images import NORMALIZATIONS, Array, ImageForm, decoded, normalized, resized

MOST_IMAGES = 256  # that requests bring in turn; all stay in memory, encoded
Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class TopClasses:
    """The answer: so many classes per request, the likeliest first."""

    count: int

    stages = ("postprocess",)

    def answered(self, outputs: Sequence[object], request_count: int) -> tuple[int]:
        """Make the answers of a batch, and return what that took in ns; errors are those of :func:`top_classes`."""
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


@dataclass(frozen=True, slots=True)
class ImageRequests:
    """Encoded images, which requests bring in turn."""

    images: Sequence[bytes]
    input_name: str
    form: ImageForm
    normalization: str

    stages = ("decode", "resize", "normalize")

    def prepared(self, requests: Sequence[int]) -> tuple[list[Array], tuple[int, ...]]:
        """Return a batch of one for each request, and what each stage took for all of them in ns."""
        times_ns = [time.perf_counter_ns()]
        pixels = [decoded(self.images[request % len(self.images)]) for request in requests]
        times_ns.append(time.perf_counter_ns())
        pixels = [resized(image, self.form) for image in pixels]
        times_ns.append(time.perf_counter_ns())
        values = [normalized(image, self.form, NORMALIZATIONS[self.normalization]) for image in pixels]
        times_ns.append(time.perf_counter_ns())
        return values, tuple(np.diff(times_ns).tolist())


def image_requests(path: Path, graph: Graph, normalization: str) -> ImageRequests:
    """Return requests that bring the images of a folder, in the order of their names, or one image.

    Args:
        graph: the model, with the dimensions of one request bound.

    Raises:
        UnusableValueError: there is no image, one cannot be decoded, or no input takes images.
    """
    name, form = image_input(graph, normalization)
    images = [checked_image(file, form) for file in image_files(path, MOST_IMAGES)]
    return ImageRequests(images, name, form, normalization)


@dataclass(frozen=True, slots=True)
class SideWork:
    """Preparation and post-processing of requests; None where there is none."""

    images: ImageRequests | None = None
    top_classes: TopClasses | None = None

    @property
    def before(self) -> tuple[str, ...]:
        return self.images.stages if self.images else ()

    @property
    def after(self) -> tuple[str, ...]:
        return self.top_classes.stages if self.top_classes else ()

    @property
    def figures(self) -> dict[str, object]:
        """The inputs and answers of requests, by columns."""
        return {
            "sample_image_count": len(self.images.images) if self.images else None,
            "image_normalization": self.images.normalization if self.images else None,
            "top_class_count": self.top_classes.count if self.top_classes else None,
        }

    def prepared(self, requests: Sequence[int], rows: list[Feeds]) -> tuple[list[Feeds], tuple[int, ...]]:
        """Return the inputs of each request with its image, and what each stage took for all of them in ns."""
        if self.images is None:
            return rows, ()
        name = self.images.input_name
        values, spent_ns = self.images.prepared(requests)
        return [{**row, name: value} for row, value in zip(rows, values, strict=True)], spent_ns

    def answered(self, outputs: Sequence[object], request_count: int) -> tuple[int, ...]:
        return self.top_classes.answered(outputs, request_count) if self.top_classes else ()


NO_SIDE_WORK = SideWork()
