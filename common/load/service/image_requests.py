"""Requests that bring an encoded image each: each is decoded, resized and normalized in the call that serves it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from common.graphs.graph import Graph
from common.runtime.inputs.image_files import checked_image, image_files, image_input
from common.runtime.inputs.images import NORMALIZATIONS, Array, ImageForm, decoded, normalized, resized

MOST_IMAGES = 256  # that requests bring in turn; all stay in memory, encoded


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
        return values, tuple(end - begin for begin, end in pairwise(times_ns))


def image_requests(path: Path, graph: Graph, normalization: str) -> ImageRequests:
    """Return requests that bring the images of a folder, in the order of their names, or one image.

    Args:
        graph: the model, with the dimensions of one request bound.
        normalization: one of ``NORMALIZATIONS``.

    Raises:
        UnusableValueError: there is no image, one cannot be decoded, or no input takes images.
    """
    name, form = image_input(graph, normalization)
    images = [checked_image(file, form) for file in image_files(path, MOST_IMAGES)]
    return ImageRequests(images, name, form, normalization)
