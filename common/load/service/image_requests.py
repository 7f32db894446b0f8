"""Requests that bring an encoded image each: each is decoded, resized and normalized in the call that serves it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from common.errors import UnusableValueError
from common.graph import Graph
from common.names import shown
from common.runtime.inputs.given import numpy_dtype
from common.runtime.inputs.images import (
    IMAGE_SUFFIXES,
    NORMALIZATIONS,
    Array,
    ImageForm,
    decoded,
    image_form,
    normalized,
    resized,
    strictly,
)

MOST_IMAGES = 256  # that requests bring in turn; all stay in memory, encoded


@dataclass(frozen=True, slots=True)
class ImageRequests:
    """Encoded images, which requests bring in turn.

    Attributes:
        images: content of the files.
    """

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
        path: folder or file.
        graph: the model, with the dimensions of one request bound.
        normalization: one of ``NORMALIZATIONS``.

    Raises:
        UnusableValueError: there is no image, one cannot be decoded, or no input takes images.
    """
    name, form = _image_input(graph)
    if form.dtype.kind == "u" and normalization != "none":
        problem = f"{normalization}, but input {name} takes whole numbers ({form.dtype})"
        raise UnusableValueError("normalize", problem, "give none")
    return ImageRequests([_checked(file, form) for file in _files(path)], name, form, normalization)


def _image_input(graph: Graph) -> tuple[str, ImageForm]:
    for name, tensor in graph.tensors.items():
        if tensor.kind == "input":
            try:
                return name, image_form(tensor, numpy_dtype(tensor))
            except ValueError:
                continue
    shapes = ", ".join(f"{name} {list(one.shape or ())}" for name, one in graph.tensors.items() if one.kind == "input")
    problem = f"no input has the shape (N, 3, H, W) or (N, H, W, 3) of an image: {shapes}"
    raise UnusableValueError("images", problem, "leave it out, or bind the dimensions of the image with <dim>")


def _files(path: Path) -> list[Path]:
    """Return the image files of a folder, at most ``MOST_IMAGES``; or the file itself."""
    try:
        path.stat()
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    except OSError as error:
        raise UnusableValueError("images", f"{shown(path)}: cannot be read ({error.strerror})") from error
    images = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    if not images:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        raise UnusableValueError("images", f"{shown(path)}: holds no image", f"give a file or a folder of {kinds}")
    return images[:MOST_IMAGES]


def _checked(file: Path, form: ImageForm) -> bytes:
    """Return the content of an image that can be decoded: a request of the run must not fail for its file."""
    try:
        content = file.read_bytes()
        strictly(lambda: resized(decoded(content), form))
    except (OSError, ValueError) as error:
        problem = f"{shown(file)}: cannot be decoded ({str(error) or type(error).__name__})"
        raise UnusableValueError("images", problem, "give other images, or leave this one out") from error
    return content
