"""Image files of a folder, and the input of a model that takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.graphs.graph import Graph
from common.messages.errors import UnusableValueError
from common.messages.names import shown
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


def image_input(graph: Graph, normalization: str) -> tuple[str, ImageForm]:
    """Return the first input that takes images, so normalized, and their form; refuse a model without one."""
    for name, tensor in graph.tensors.items():
        if tensor.kind == "input":
            try:
                form = image_form(tensor, numpy_dtype(tensor))
            except ValueError:
                continue
            if form.dtype.kind == "u" and normalization != "none":
                problem = f"{normalization}, but input {name} takes whole numbers ({form.dtype})"
                raise UnusableValueError("normalize", problem, "give none")
            return name, form
    shapes = ", ".join(f"{name} {list(one.shape or ())}" for name, one in graph.tensors.items() if one.kind == "input")
    problem = f"no input has the shape (N, 3, H, W) or (N, H, W, 3) of an image: {shapes}"
    raise UnusableValueError("images", problem, "leave it out, or bind the dimensions of the image with <dim>")


def image_files(path: Path, most: int) -> list[Path]:
    """Return a file, or the image files of a folder by name and at most so many; UnusableValueError: there is none."""
    try:
        path.stat()
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    except OSError as error:
        raise UnusableValueError("images", f"{shown(path)}: cannot be read ({error.strerror})") from error
    images = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    if not images:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        raise UnusableValueError("images", f"{shown(path)}: holds no image", f"give a file or a folder of {kinds}")
    return images[:most]


def checked_image(file: Path, form: ImageForm) -> bytes:
    """Return the content of an image, or raise UnusableValueError where it cannot be decoded.

    A request of the run must not fail for its file.
    """
    try:
        content = file.read_bytes()
        strictly(lambda: resized(decoded(content), form))
    except (OSError, ValueError) as error:
        problem = f"{shown(file)}: cannot be decoded ({str(error) or type(error).__name__})"
        raise UnusableValueError("images", problem, "give other images, or leave this one out") from error
    return content


def read_images(files: Sequence[Path], form: ImageForm, normalization: str) -> Array:
    """Return images as an input takes them, (images, …); errors are those of :func:`checked_image`."""
    pixels = (resized(decoded(checked_image(file, form)), form) for file in files)
    return np.concatenate([normalized(image, form, NORMALIZATIONS[normalization]) for image in pixels])
