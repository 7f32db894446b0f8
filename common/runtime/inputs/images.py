"""Images as models take them: decoded, resized and cropped, normalized, in the layout of an input."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from common.graphs.graph import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
RESIZE_OVER_CROP = 256 / 224  # the shortest side is resized to 256 before a crop of 224
CHANNELS = 3
Array = npt.NDArray[Any]
Found = TypeVar("Found")
Channels = tuple[float, float, float]
Normalization = tuple[Channels, Channels]


# Mean and standard deviation per channel, for values in 0 … 1. "imagenet" has the statistics of torchvision's models;
# "signed" gives -1 to 1, "none" the pixels, 0 to 255.
NORMALIZATIONS: dict[str, Normalization | None] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "signed": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "none": None,
}


@dataclass(frozen=True, slots=True)
class ImageForm:
    """The format of an image input: its size, with its channels first (NCHW) or last (NHWC), in a type."""

    height: int
    width: int
    is_channels_first: bool
    dtype: np.dtype[Any]


def image_form(tensor: Tensor, dtype: np.dtype[Any]) -> ImageForm:
    """Return what an input takes; ValueError: it is no input for RGB images."""
    shape = tuple(size for size in tensor.shape or () if isinstance(size, int))
    if len(shape) == 4 and shape[1] == CHANNELS:
        return ImageForm(shape[2], shape[3], is_channels_first=True, dtype=dtype)
    if len(shape) == 4 and shape[3] == CHANNELS:
        return ImageForm(shape[1], shape[2], is_channels_first=False, dtype=dtype)
    takes = "(N, 3, H, W) or (N, H, W, 3)"
    raise ValueError(f"an image needs an input of shape {takes}, this one is {list(tensor.shape or ())}")


def decoded(file: Path | bytes) -> Image:
    """Return the pixels of an encoded image as RGB; OSError: the file cannot be read.

    Raises:
        ValueError: Pillow cannot decode it, or it has so many pixels that it may be an attack.
    """
    from PIL import Image

    try:
        with Image.open(BytesIO(file) if isinstance(file, bytes) else file) as opened:
            return opened.convert("RGB")
    except (SyntaxError, Image.DecompressionBombError) as error:  # Pillow's own for a broken PNG
        raise ValueError(str(error)) from error


def strictly(read: Callable[[], Found]) -> Found:
    """Return what a function reads; what Pillow only warns of is a ValueError. For one thread alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return read()
        except Warning as warning:
            raise ValueError(str(warning)) from warning


def resized(image: Image, form: ImageForm) -> Image:
    """Return the middle of an image, whose shortest side was resized to a little more than the form takes."""
    from PIL.Image import Resampling

    scale = RESIZE_OVER_CROP * max(form.height / image.height, form.width / image.width)
    size = round(image.width * scale), round(image.height * scale)
    whole = image.resize(size, Resampling.BILINEAR)
    left, top = (size[0] - form.width) // 2, (size[1] - form.height) // 2
    return whole.crop((left, top, left + form.width, top + form.height))


def normalized(image: Image, form: ImageForm, normalization: Normalization | None) -> Array:
    pixels = np.asarray(image)
    if normalization is not None:
        mean, deviation = (np.array(channels, np.float32) for channels in normalization)
        pixels = (pixels.astype(np.float32) / 255 - mean) / deviation
    planes = pixels.transpose(2, 0, 1) if form.is_channels_first else pixels
    return np.ascontiguousarray(planes[np.newaxis], form.dtype)
