"""Samples that judge a format: arrays or images of the user, or else random inputs. Some of them calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from common.graphs.graph import Graph, Tensor
from common.messages.errors import UnusableValueError
from common.messages.names import listed, shown
from common.onnx_graph.load import LoadedModel, load_model
from common.runtime.inputs.given import make_feeds, numpy_dtype, read_array
from common.runtime.inputs.image_files import image_files, image_input, read_images
from common.runtime.inputs.values import Array, Feeds

LABELS = "labels"  # the array of a .npz that holds a class for each sample
GIVEN, RANDOM = "given", "random"
MOST_IMAGES = 5000
MOST_DRAWN = 100_000
MOST_CALIBRATING = 32  # runs


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Where samples come from."""

    inputs: Mapping[str, Path]  # a .npy file for each input, the samples along its first axis
    archive: Path | None = None  # a .npz file with an array for each input, and ``labels``
    images: Path | None = None  # a folder of images, or one image
    normalization: str = "imagenet"
    labels: Path | None = None  # a .npy file with the class of each sample

    @property
    def are_given(self) -> bool:
        return bool(self.inputs or self.archive or self.images)


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs of several runs."""

    feeds: Sequence[Feeds]
    per_run: int
    source: str  # ``given`` or ``random``
    labels: Array | None = None  # the class of each sample, (samples,) or (samples, positions); None: unknown
    drawn: tuple[str, ...] = ()  # inputs that were drawn, although others were given
    places: tuple[int, ...] = ()  # of each run, its place among those that were loaded; empty: that which it has here

    def place(self, sample: int) -> int:
        """Return the place of a sample among those that were loaded."""
        run, within = divmod(sample, self.per_run)
        return (self.places[run] if self.places else run) * self.per_run + within

    @property
    def count(self) -> int:
        return len(self.feeds) * self.per_run

    def picked(self, runs: Sequence[int]) -> Samples:
        labels = None
        if self.labels is not None:
            by_run = self.labels.reshape(len(self.feeds), self.per_run, *self.labels.shape[1:])
            labels = by_run[[*runs]].reshape(-1, *self.labels.shape[1:])
        return replace(self, feeds=[self.feeds[run] for run in runs], labels=labels, places=tuple(runs))


def divided(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Return the samples that calibrate, at most half of all, and those that judge; a single run does both.

    The division is random, because files are often sorted by class.
    """
    order = [int(run) for run in np.random.default_rng(seed).permutation(len(samples.feeds))]
    count = min(len(order) // 2, MOST_CALIBRATING)
    return (samples.picked(order[:count]), samples.picked(sorted(order[count:]))) if count else (samples, samples)


def loaded_samples(
    path: Path, sizes: Mapping[str, int], configured: Mapping[str, int], files: SampleFiles, count: int, seed: int
) -> tuple[LoadedModel, Samples]:
    """Return a model with the dimensions of one run bound, and its samples.

    Args:
        sizes: of dynamic dimensions; the first dimension of an input is 1 by default.
        configured: the same, of lower precedence.
        count: number of samples to draw if none are given.

    Raises:
        UnusableValueError: a file cannot be read or does not fit, or a dimension is not bound.
    """
    firsts = _first_sizes(path)
    configured = {**{first: 1 for first in firsts.values() if isinstance(first, str)}, **configured}
    known = {**configured, **sizes}
    per_run = {name: known[first] if isinstance(first, str) else first for name, first in firsts.items()}
    arrays = _arrays(files)
    first = {name: array[: per_run.get(name, 1)] for name, array in arrays.items() if array.ndim}
    model = load_model(path, sizes, configured, values=first)
    images = _images(model.graph, files)
    if twice := [name for name in images if name in arrays]:
        raise UnusableValueError("images", f"{shown(twice[0])} is in <samples> or <input>, too", "give it once")
    arrays |= images
    named = model.graph.tensors.get(LABELS)  # as an input of the model, it holds no class of a sample
    held = None if named is not None and named.kind == "input" else arrays.pop(LABELS, None)
    labels = held if files.labels is None else _read_labels(files.labels)
    if not files.are_given:
        if labels is not None:
            remedy = "give <samples>, <images> or <input>"
            raise UnusableValueError("labels", "are of samples, and none are given", remedy)
        return model, _drawn(model.graph, max(per_run.values(), default=1), count, seed)
    return model, _samples(model.graph, arrays, labels, seed)


def _first_sizes(path: Path) -> dict[str, int | str]:
    """Return the size or the name of the first dimension of each input that has axes."""
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception:  # load_model says what is wrong with it, and in whose words
        return {}
    weights = {weight.name for weight in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    firsts = {value.name: dim for value in inputs for dim in value.type.tensor_type.shape.dim[:1]}
    return {name: first.dim_param or first.dim_value or f"{name}.0" for name, first in firsts.items()}


def _arrays(files: SampleFiles) -> dict[str, Array]:
    arrays = {} if files.archive is None else _archive(files.archive)
    for name in files.inputs:
        if name in arrays:
            raise UnusableValueError("input", f"{shown(name)} is in <samples>, too", "give it once")
    return arrays | {name: read_array(path, name) for name, path in files.inputs.items()}


def _read_labels(path: Path) -> Array:
    try:
        return read_array(path, LABELS)
    except UnusableValueError as error:  # it names the input that an array is of
        raise UnusableValueError("labels", error.problem.removeprefix(f"{LABELS}="), error.remedy) from error


def _archive(path: Path) -> dict[str, Array]:
    try:
        if not path.is_file():
            raise UnusableValueError("samples", f"{shown(path)}: is no file", "give a .npz file")
        with warnings.catch_warnings(action="ignore"), path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UnusableValueError("samples", f"{shown(path)}: holds one array", "give it with <input>")
            with archive:
                return {name: _member(archive, name, path) for name in archive.files}
    except UnusableValueError:
        raise
    except Exception as error:  # numpy takes the header for Python, so a broken one may raise anything
        raise UnusableValueError("samples", f"{shown(path)}: cannot be read ({error})", "give a .npz file") from error


def _member(archive: Any, name: str, path: Path) -> Array:
    """Return an array of an archive, in which anything may be zipped up."""
    array = archive[name]
    if not isinstance(array, np.ndarray):
        raise UnusableValueError("samples", f"{shown(path)}: {shown(name)} is no array", "write it with numpy.savez")
    return array.astype(object) if array.dtype.kind == "U" else array  # the runtime takes text as Python objects


def _images(graph: Graph, files: SampleFiles) -> dict[str, Array]:
    if files.images is None:
        return {}
    name, form = image_input(graph, files.normalization)
    return {name: read_images(image_files(files.images, MOST_IMAGES), form, files.normalization)}


def _drawn(graph: Graph, per_run: int, count: int, seed: int) -> Samples:
    if count > MOST_DRAWN:
        raise UnusableValueError("random", f"{count} samples", f"give at most {MOST_DRAWN}")
    runs = -(-count // max(per_run, 1))
    return Samples([make_feeds(graph, {}, seed + run) for run in range(runs)], per_run, RANDOM)


def _samples(graph: Graph, arrays: Mapping[str, Array], labels: Array | None, seed: int) -> Samples:
    inputs = {name: tensor for name, tensor in graph.tensors.items() if tensor.kind == "input"}
    for name in arrays:
        if name not in inputs:
            raise UnusableValueError("samples", f"the model has no input {shown(name)}", f"it has {listed(inputs, 5)}")
    if not arrays:
        raise UnusableValueError("samples", "holds no samples", f"give an array for {listed(inputs, 5)}")
    steps = {name: _per_run(inputs[name]) for name in arrays}
    counts = {name: _sample_count(inputs[name], array) for name, array in arrays.items()}
    runs = {count // steps[name] for name, count in counts.items()}
    if len(runs) > 1:
        said = listed((f"{shown(name)} {count}" for name, count in counts.items()), 5)
        raise UnusableValueError("samples", f"inputs have different numbers of samples: {said}", "give as many of each")
    per_run, total = max(steps.values()), max(counts.values())
    if labels is not None and (labels.dtype.kind not in "iu" or labels.ndim not in (1, 2) or len(labels) != total):
        problem = f"{labels.dtype} of shape {list(labels.shape)}, and there are {total} samples"
        raise UnusableValueError("labels", problem, "give one whole number for each sample")
    others = {name: value for name, value in make_feeds(graph, {}, seed).items() if name not in arrays}
    feeds = [
        others | {name: _part(inputs[name], array, run * steps[name]) for name, array in arrays.items()}
        for run in range(*runs)
    ]
    return Samples(feeds, per_run, GIVEN, labels, tuple(others))


def _per_run(tensor: Tensor) -> int:
    return int(str(tensor.shape[0])) if tensor.shape else 1


def _part(tensor: Tensor, array: Array, first: int) -> Array:
    """Return the samples of a run; one for an input without axes."""
    return np.asarray(array[first]) if tensor.shape == () else array[first : first + _per_run(tensor)]


def _sample_count(tensor: Tensor, array: Array) -> int:
    """Return how many samples, in whole runs, an array holds; UnusableValueError: its shape or type does not fit."""
    wanted = list(array.shape if tensor.shape is None else tensor.shape or array.shape[:1])
    if not wanted or array.ndim != len(wanted) or list(array.shape[1:]) != wanted[1:]:
        problem = f"{shown(tensor.name)} has shape {list(array.shape)}, the model takes {['samples', *wanted[1:]]}"
        raise UnusableValueError("samples", problem, "give samples along the first axis")
    if array.dtype != numpy_dtype(tensor):
        raise UnusableValueError("samples", f"{shown(tensor.name)} is {array.dtype}, the model takes {tensor.dtype}")
    if len(array) and not _per_run(tensor):
        raise UnusableValueError("samples", f"the first axis of {shown(tensor.name)} is 0", "bind it with <dim>")
    if not len(array) or len(array) % _per_run(tensor):
        problem = f"{shown(tensor.name)} has {len(array)} samples"
        problem += f", and a run takes {_per_run(tensor)}" if len(array) else ""
        raise UnusableValueError("samples", problem, "give whole runs of samples")
    return len(array)
