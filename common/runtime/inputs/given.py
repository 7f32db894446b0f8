"""Inputs of the model: seeded random values by type and shape, arrays from .npy files, or images."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from common.graphs.graph import Graph, Node, Tensor
from common.graphs.operators import COPIES, RESHAPES
from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import shown
from common.runtime.inputs.images import IMAGE_SUFFIXES, NORMALIZATIONS, decoded, image_form, normalized, resized
from common.runtime.inputs.values import Array


def make_feeds(graph: Graph, given: Mapping[str, Path], seed: int) -> dict[str, Array]:
    """Make one array for each graph input; lengths of a cache are those that the graph is loaded with.

    Raises:
        UnusableValueError: a given name is no input, a file does not fit its input, or an input of unknown rank has
            none.
        PipelineError: an input does not fit into memory.
    """
    read = read_given(graph, given)
    random = np.random.default_rng(seed)
    return {
        name: read[name] if name in read else random_input(tensor, random, named_categories(graph, name))
        for name, tensor in graph.tensors.items()
        if tensor.kind == "input"
    }


def read_given(graph: Graph, given: Mapping[str, Path]) -> dict[str, Array]:
    """Read the inputs that are given as files; errors are those of :func:`make_feeds`."""
    inputs = {name: tensor for name, tensor in graph.tensors.items() if tensor.kind == "input"}
    for name in given:
        if name not in inputs:
            raise UnusableValueError("input", f"the model has no input {name}", f"it has {', '.join(inputs)}")
    return {name: read_input(inputs[name], path) for name, path in given.items()}


def given_arrays(given: Mapping[str, Path]) -> dict[str, Array]:
    """Read the arrays among the inputs, not images: these have no shape before the model is known."""
    arrays = {name: path for name, path in given.items() if path.suffix.lower() not in IMAGE_SUFFIXES}
    return {name: read_array(path, name) for name, path in arrays.items()}


def random_input(tensor: Tensor, random: np.random.Generator, categories: Sequence[str | int] = ()) -> Array:
    """Draw standard normal floats, random booleans, or integers of 0 or 1 (an index into any table of two rows).

    Where the model names categories, one of them is drawn for each element. UnusableValueError: the model does not
    declare the tensor's rank, or numpy lacks its type. PipelineError: the array does not fit into memory.
    """
    dtype = numpy_dtype(tensor)
    if tensor.shape is None:
        problem = f"input {tensor.name} needs a file, because the model does not declare its rank"
        raise UnusableValueError("input", problem, f"give <input> {tensor.name}=FILE")
    try:
        shape = tuple(int(dim) for dim in tensor.shape if isinstance(dim, int))
        if isinstance(tensor.value, int):
            return np.full(shape, tensor.value, dtype)
        if categories:
            return np.array(categories, dtype)[random.integers(0, len(categories), shape)].reshape(shape)
        return _drawn(dtype, shape, random)
    except (MemoryError, ValueError) as error:  # numpy raises ValueError for more elements than it can address
        remedy = "bind smaller dimensions with <dim>, or use a host with more memory"
        raise PipelineError(f"input {tensor.name}", f"too large for memory: {list(tensor.shape)}", remedy) from error


def _drawn(dtype: np.dtype[Any], shape: tuple[int, ...], random: np.random.Generator) -> Array:
    if dtype.kind in "fc" or dtype.name == "bfloat16":
        return np.asarray(random.standard_normal(shape)).astype(dtype)
    if dtype.kind == "O":
        return np.full(shape, "text", dtype=object)
    return np.asarray(random.integers(0, 2, shape)).astype(dtype)


def numpy_dtype(tensor: Tensor) -> np.dtype[Any]:
    """Return the numpy type that the runtime takes for a tensor; UnusableValueError: neither numpy nor onnx has one."""
    name = {"string": "object"}.get(tensor.dtype, tensor.dtype)
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:  # types of the ml_dtypes package, which onnx knows by other names
        return helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(tensor.dtype.upper()))
    except (KeyError, ValueError):
        problem = f"numpy has no type for {tensor.dtype}, the type of its input {tensor.name}"
        raise UnusableValueError("model", problem, "give a model with other types of inputs") from None


def read_input(tensor: Tensor, path: Path) -> Array:
    """Read an array or an image for one input; where the model declares no shape, any shape fits.

    Raises:
        UnusableValueError: the file cannot be read, or its shape or type does not fit.
    """
    is_image = path.suffix.lower() in IMAGE_SUFFIXES
    array = _read(lambda: read_image(tensor, path), tensor.name, path) if is_image else read_array(path, tensor.name)
    if tensor.shape is not None and array.shape != tensor.shape:
        raise _unusable(tensor.name, path, f"shape {list(array.shape)}, the model takes {list(tensor.shape)}")
    if array.dtype != numpy_dtype(tensor):
        raise _unusable(tensor.name, path, f"type {array.dtype}, the model takes {tensor.dtype}")
    return np.asarray(array)


def read_array(path: Path, name: str) -> Array:
    """Read one array from a .npy file, for the input of this name. Text is an array of ``<U…``, as numpy calls it.

    Raises:
        UnusableValueError: there is no such file, or it does not hold one array.
    """
    array = _read(lambda: _loaded(path), name, path)
    if not isinstance(array, np.ndarray):
        raise _unusable(name, path, "holds several arrays", "save one array with numpy.save")
    return array


def _loaded(path: Path) -> Array:
    with warnings.catch_warnings(action="ignore"):  # numpy advises to save again what Python 2 wrote
        array: Array = np.load(path, allow_pickle=False)
    is_text = isinstance(array, np.ndarray) and array.dtype.kind == "U"
    return array.astype(object) if is_text else array  # the runtime takes text as Python objects


def _read(read: Callable[[], Array], name: str, path: Path) -> Array:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise _unusable(name, path, "is not a file", "give a .npy file or an image")
        return read()
    except PipelineError:
        raise
    except FileNotFoundError:
        raise _unusable(name, path, "no such file") from None
    except MemoryError:
        raise _unusable(name, path, "too large for memory", "give a smaller array") from None
    except Exception as error:  # numpy takes the header for Python, so a broken one may raise anything
        if "Object arrays" in str(error):
            remedy = "text can be saved without them: numpy.save(FILE, array.astype('U'))"
            raise _unusable(name, path, "holds Python objects, which are code to run and not read", remedy) from error
        reason = getattr(error, "strerror", None) or error  # the path is in the line already
        raise _unusable(name, path, f"cannot be read ({reason})", "give a .npy file or an image") from error


def _unusable(name: str, path: Path, problem: str, remedy: str = "") -> UnusableValueError:
    return UnusableValueError("input", f"{shown(name)}={shown(path)}: {problem}", remedy)


def read_image(tensor: Tensor, path: Path) -> Array:
    """Read an RGB image as ImageNet models take it: shortest side resized, centre cropped, normalized.

    Raises:
        ValueError: the input takes no images, or the file holds none.
    """
    form = image_form(tensor, numpy_dtype(tensor))
    values = normalized(resized(decoded(path), form), form, NORMALIZATIONS["imagenet"])
    return np.broadcast_to(values, (tensor.shape or values.shape)[:1] + values.shape[1:])


ENCODERS = frozenset({"LabelEncoder", "OneHotEncoder", "CategoryMapper", "TfIdfVectorizer"})
TEXTS = ("keys_strings", "cats_strings", "classes_strings", "pool_strings")
INTEGERS = ("keys_int64s", "cats_int64s", "pool_int64s")
# Operators whose results are elements of their first operand.
SELECTIONS = COPIES | RESHAPES | {"Transpose", "Gather", "Slice", "Expand", "ArrayFeatureExtractor", "StringNormalizer"}


def named_categories(graph: Graph, name: str) -> list[str] | list[int]:
    """Return the categories that the nearest encoder behind an input names; none where there is no encoder."""
    dtype = graph.tensors[name].dtype
    lists = TEXTS if dtype == "string" else INTEGERS if dtype.startswith("int") else ()
    waiting, seen = deque([name]), {name}
    while waiting and lists:
        current = waiting.popleft()
        for node in (graph.by_name[consumer] for consumer in graph.consumers.get(current, ())):
            if node.op_type in ENCODERS and (categories := _listed(node, lists)):
                return categories
            is_passed = node.op_type == "Concat" or (node.op_type in SELECTIONS and node.inputs[0] == current)
            new = [output for output in node.outputs if is_passed and output not in seen]
            waiting += new
            seen |= {*new}
    return []


def _listed(node: Node, lists: tuple[str, ...]) -> list[Any]:
    items = next((node.attributes[name] for name in lists if node.attributes.get(name)), ())
    listed = items if isinstance(items, list | tuple) else ()
    return [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in listed]
