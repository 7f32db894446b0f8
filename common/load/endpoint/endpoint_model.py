"""The model of an endpoint: what one request of it is, and connections that answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

from common.graphs.graph import Graph, Tensor
from common.load.endpoint.tensors import FREE, TYPES, Array, ModelMetadata, TensorForm
from common.load.results.load_figures import Flops
from common.messages.errors import UnusableValueError
from common.runtime.inputs.given import make_feeds

SAMPLES = 4  # different requests; more would only fill memory
NO_SESSION = (  # what is unknown of the sessions there
    *("provider", "graph_optimization", "threads", "session_workers", "thread_pool", "execution_mode"),
    *("inter_op_threads", "spinning", "affinity", "image_normalization", "sample_image_count", "top_class_count"),
)


@dataclass(frozen=True, slots=True)
class EndpointModel:
    """A model of an endpoint and one request; its inputs are as in :class:`~common.load.service.sessions.Inputs`."""

    address: str  # of the endpoint, without secrets
    metadata: ModelMetadata
    dimensions: Mapping[str, int]  # sizes of free axes, by ``INPUT.AXIS``
    samples: tuple[Mapping[str, Array], ...]
    batched: frozenset[str]
    flops: Flops | None = None  # unknown, because no model file says them

    @property
    def model_id(self) -> str:
        """An identity of what the endpoint says of the model: name, platform, inputs and outputs."""
        return hashlib.sha256(json.dumps(asdict(self.metadata), sort_keys=True).encode()).hexdigest()

    @property
    def figures(self) -> dict[str, object]:
        return {"served_model": self.metadata.name, "endpoint": self.address, **dict.fromkeys(NO_SESSION)}


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections to an endpoint, each with a worker that sends one batch at a time."""

    count: int

    @property
    def figures(self) -> dict[str, object]:
        return {"session_count": self.count, "replica_count": 1}

    @property
    def device(self) -> str:
        return ""


def endpoint_model(
    address: str, metadata: ModelMetadata, dimensions: Mapping[str, int], files: Mapping[str, Path], seed: int
) -> EndpointModel:
    """Make requests of a model: a first axis of any size has a row per request, other such axes have a given size.

    Args:
        dimensions: sizes of free axes, by ``INPUT.AXIS``.
        files: inputs from files; the others are random.

    Raises:
        UnusableValueError: an axis has no size, or a size no axis, or a file does not fit.
    """
    free = {f"{form.name}.{axis}" for form in metadata.inputs for axis, size in enumerate(form.shape) if size == FREE}
    if unknown := [name for name in dimensions if name not in free]:
        problem = f"{unknown[0]} is no free axis of an input"
        raise UnusableValueError("dim", problem, f"free axes are {', '.join(sorted(free)) or 'none'}")
    tensors = {form.name: _bound(form, dimensions) for form in metadata.inputs}
    if too_large := next((form for form in metadata.inputs if prod(tensors[form.name].shape or ()) > 2**40), None):
        raise UnusableValueError("dim", f"input {too_large.name} would have {tensors[too_large.name].shape}", "")
    graph = Graph((), tensors, ())
    samples = tuple(make_feeds(graph, files, seed + index) for index in range(SAMPLES))
    firsts = [form.name for form in metadata.inputs if form.shape[:1] == (FREE,)]
    batched = frozenset(name for name in firsts if f"{name}.0" not in dimensions)
    return EndpointModel(address, metadata, dimensions, samples, batched)


def _bound(form: TensorForm, dimensions: Mapping[str, int]) -> Tensor:
    """Return one request of an input."""
    shape = []
    for axis, size in enumerate(form.shape):
        name = f"{form.name}.{axis}"
        if size == FREE and axis and name not in dimensions:
            problem = f"axis {axis} of input {form.name} {[*form.shape]} has no size"
            raise UnusableValueError("dim", problem, f"give <dim> {name}=N")
        shape.append(dimensions.get(name, 1) if size == FREE else size)
    return Tensor(form.name, TYPES[form.datatype], form.bits, tuple(shape), "input")
