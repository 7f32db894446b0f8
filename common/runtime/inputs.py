"""What the model is fed: seeded random values by type and shape, arrays from .npy files, or an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from common.errors import CommandLineError, PipelineError
from common.graph import Graph, Tensor

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
# ImageNet statistics per channel of values in 0 … 1 (torchvision's).
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RESIZE_OVER_CROP = 256 / 224  # the shortest side is resized to 256 before a crop of 224

Array = npt.NDArray[Any]


def make_feeds(graph: Graph, given: Mapping[str, Path], seed: int) -> dict[str, Array]:
    """One array for each graph input.

    Raises:
        CommandLineError: ``given`` names no input, a file does not fit the input's shape or type, or one is needed.
        PipelineError: an input does not fit into memory.
    """
    read = read_given(graph, given)
    random = np.random.default_rng(seed)
    return {
        name: read[name] if name in read else random_input(tensor, random)
        for name, tensor in graph.tensors.items()
        if tensor.kind == "input"
    }


def read_given(graph: Graph, given: Mapping[str, Path]) -> dict[str, Array]:
    """The inputs that are given as files.

    Raises:
        CommandLineError: ``given`` names no input, or a file does not fit the input's shape or type.
    """
    inputs = {name: tensor for name, tensor in graph.tensors.items() if tensor.kind == "input"}
    for name in given:
        if name not in inputs:
            raise CommandLineError(f"--input {name}", "the model has no such input", f"it has {', '.join(inputs)}")
    return {name: read_input(inputs[name], path) for name, path in given.items()}


def given_arrays(given: Mapping[str, Path]) -> dict[str, Array]:
    """The inputs that are given as arrays, before it is known what the model takes; an image binds no shape.

    Raises:
        CommandLineError: a file cannot be read.
    """
    arrays = {name: path for name, path in given.items() if path.suffix.lower() not in IMAGE_SUFFIXES}
    return {name: read_array(path, f"--input {name}={path}") for name, path in arrays.items()}


def random_input(tensor: Tensor, random: np.random.Generator) -> Array:
    """Standard normal floats, integers of 0 or 1 (an index that any table of two rows has), random booleans.

    Raises:
        CommandLineError: the model does not say of how many dimensions it is.
        PipelineError: it does not fit into memory.
    """
    dtype = numpy_dtype(tensor)
    if tensor.shape is None:
        remedy = f"give it a file: --input {tensor.name}=FILE"
        raise CommandLineError(f"input {tensor.name}", "the model does not say of which rank it is", remedy)
    try:
        return _drawn(dtype, tuple(int(dim) for dim in tensor.shape if isinstance(dim, int)), random)
    except (MemoryError, ValueError) as error:  # numpy's word for more elements than it can address
        remedy = "bind smaller dimensions (--dim) or use a host with more memory"
        raise PipelineError(f"input {tensor.name}", f"too large for memory: {list(tensor.shape)}", remedy) from error


def _drawn(dtype: np.dtype[Any], shape: tuple[int, ...], random: np.random.Generator) -> Array:
    if dtype.kind in "fc" or dtype.name == "bfloat16":
        return np.asarray(random.standard_normal(shape)).astype(dtype)
    if dtype.kind == "O":
        return np.full(shape, "text", dtype=object)
    return np.asarray(random.integers(0, 2, shape)).astype(dtype)


def numpy_dtype(tensor: Tensor) -> np.dtype[Any]:
    """The numpy type that the runtime takes for a tensor."""
    name = {"string": "object"}.get(tensor.dtype, tensor.dtype)
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:  # those that ONNX knows by another package, under a name that numpy does not take
        return helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(tensor.dtype.upper()))
    except (KeyError, ValueError):
        raise CommandLineError(
            f"input {tensor.name}", f"numpy has no type for {tensor.dtype}", "give the model other inputs"
        ) from None


def read_input(tensor: Tensor, path: Path) -> Array:
    """Read an array or an image for one input, and check that it fits; any shape does where the model says none."""
    flag = f"--input {tensor.name}={path}"
    if path.suffix.lower() in IMAGE_SUFFIXES:
        array = _read(lambda: read_image(tensor, path), flag)
    else:
        array = read_array(path, flag)
    if tensor.shape is not None and array.shape != tensor.shape:
        raise CommandLineError(flag, f"shape {list(array.shape)}, the model takes {list(tensor.shape)}")
    if array.dtype != numpy_dtype(tensor):
        raise CommandLineError(flag, f"type {array.dtype}, the model takes {tensor.dtype}")
    return np.asarray(array)


def read_array(path: Path, flag: str) -> Array:
    """One array from a .npy file.

    Raises:
        CommandLineError: there is no such file, or it is none.
    """
    array = _read(lambda: np.load(path, allow_pickle=False), flag)
    if not isinstance(array, np.ndarray):
        raise CommandLineError(flag, "holds several arrays", "save one array with numpy.save")
    return array


def _read(read: Callable[[], Array], flag: str) -> Array:
    try:
        return read()
    except FileNotFoundError:
        raise CommandLineError(flag, "no such file") from None
    except MemoryError:
        raise CommandLineError(flag, "too large for memory", "give a smaller array") from None
    except (OSError, ValueError, EOFError) as error:
        raise CommandLineError(flag, f"cannot be read ({error})", "give a .npy file or an image") from error


def read_image(tensor: Tensor, path: Path) -> Array:
    """An RGB image as ImageNet models take it: shortest side resized, centre cropped, normalized, NCHW.

    Raises:
        ValueError: the input is no (N, 3, H, W) float tensor.
    """
    from PIL import Image

    shape = tensor.shape or ()
    if len(shape) != 4 or shape[1] != 3 or not all(isinstance(dim, int) for dim in shape):
        raise ValueError(f"an image needs an input of shape (N, 3, H, W), this one is {list(shape)}")
    batch, _, height, width = (int(dim) for dim in shape if isinstance(dim, int))
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    scale = RESIZE_OVER_CROP * max(height / image.height, width / image.width)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    pixels = np.asarray(image.crop((left, top, left + width, top + height)), np.float32) / 255
    planes = ((pixels - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)).transpose(2, 0, 1)
    return np.broadcast_to(planes, (batch, *planes.shape)).astype(numpy_dtype(tensor))
