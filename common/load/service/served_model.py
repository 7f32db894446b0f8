"""A model file that is served: what one request of it is, what its calls compute, and sessions that answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from common.graphs.expressions import at, sum_of
from common.load.results.load_figures import Flops
from common.load.service.concurrency import USUAL, Concurrency
from common.load.service.hosts import HostedService, open_service
from common.load.service.sessions import ServicePlan, SessionService
from common.load.service.side_work import NO_SIDE_WORK, SideWork, TopClasses, image_requests
from common.messages.errors import UnusableValueError
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import LoadedModel, load_model
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.inputs.images import Array
from common.runtime.providers.provider_table import device_of
from common.runtime.sessions.session import SessionSettings

SAMPLES = 4  # different requests; more would only fill memory


@dataclass(frozen=True, slots=True)
class SessionShape:
    """How many sessions answer, and how they are set up."""

    session_count: int
    options: SessionSettings  # threads, provider and optimization level of each
    concurrency: Concurrency = USUAL
    replicas: int = 1  # runs that share each session at a time

    @property
    def settings(self) -> list[SessionSettings]:
        """Settings of each session; what the runtime does not do is refused."""
        self.concurrency.require_possible(self.session_count, self.options, self.replicas)
        return self.concurrency.settings_of(self.session_count, self.options)

    @property
    def is_possible(self) -> bool:
        return self.concurrency.is_possible(self.session_count, self.options, self.replicas)

    @property
    def device(self) -> str:
        """The runtime's name of the device that computes; empty for the host."""
        return device_of(self.options.provider)

    @property
    def figures(self) -> dict[str, object]:
        """How sessions are set up, by the columns of tables."""
        options = self.options
        return {
            "provider": options.provider,
            "graph_optimization": options.optimization,
            "session_count": self.session_count,
            "threads": options.threads,
            "replica_count": self.replicas,
            **self.concurrency.columns,
        }


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model and one request of it; its inputs are as in :class:`~common.load.service.sessions.Inputs`."""

    path: Path
    bound: LoadedModel  # the model with the dimensions of one request bound
    flops: Flops  # FLOPs of a call by its batch size and its length
    samples: tuple[Mapping[str, Array], ...]
    variable: Mapping[str, int]
    side_work: SideWork = NO_SIDE_WORK

    @property
    def figures(self) -> dict[str, object]:
        return {"served_model": self.path.name, "endpoint": None, **self.side_work.figures}

    def with_side_work(self, images: Path | None, normalization: str, top_k: int | None) -> ServedModel:
        """Return the model with requests that bring images of a folder or file, and are answered by top classes.

        Raises:
            UnusableValueError: the images or the model's inputs do not go together.
        """
        bring = image_requests(images, self.bound.graph, normalization) if images else None
        return replace(self, side_work=SideWork(bring, TopClasses(top_k) if top_k else None))

    def service(self, shape: SessionShape, *, is_hosted: bool = False) -> SessionService | HostedService:
        """Create sessions that answer requests, in other processes where they need them or if asked.

        Raises:
            PipelineError: the runtime refuses the model.
            UnusableValueError: it does not do what is asked of it.
        """
        plan = ServicePlan(self.path, shape.settings, self.samples, self.variable, shape.replicas, self.side_work)
        return open_service(plan, shape.concurrency, is_hosted=is_hosted)


def served_model(
    path: Path,
    dimensions: Mapping[str, int],
    configured: Mapping[str, int],
    files: Mapping[str, Path],
    *,
    length_dim: str | None = None,
    length: int = 0,
    seed: int = 0,
) -> ServedModel:
    """Load a model, and make requests of it.

    Args:
        configured: sizes of lower precedence.
        files: inputs from files; the others are random.
        length: the longest request; 0 where all have one size.

    Raises:
        UnusableValueError: a dimension is unbound, or batching chooses its size.
    """
    given = {**dimensions, **({length_dim: length} if length_dim and length else {})}
    free = load_model(path, {}, symbolic=True)
    inputs = [tensor.shape for tensor in free.graph.tensors.values() if tensor.kind == "input" and tensor.shape]
    firsts = {str(shape[0]).strip("'") for shape in inputs} & {*free.unbound}  # batching chooses these dimensions
    if name := next((name for name in given if name in firsts and given[name] != 1), ""):
        problem = f"{name}={given[name]}: {name} is the first axis of an input, and a request is one row of it"
        raise UnusableValueError("dim", problem, "leave it out, and give <batch_max>")
    bound = load_model(path, given, {**configured, **dict.fromkeys(firsts, 1)}, values=given_arrays(files))
    chosen = {*firsts, *([length_dim] if length else [])}
    fixed = {name: size for name, size in bound.dimensions.items() if name not in chosen}
    counted = load_model(path, fixed, symbolic=True) if fixed else free
    samples = tuple(make_feeds(bound.graph, files, seed + index) for index in range(SAMPLES))
    sizes = {name: [*map(str, free.graph.tensors[name].shape or ())] for name in samples[0]} if length else {}
    variable = {name: own.index(length_dim) for name, own in sizes.items() if length_dim in own}
    return ServedModel(path, bound, _flops_of(counted, firsts, length_dim), samples, variable)


def _flops_of(counted: LoadedModel, firsts: Collection[str], length_dim: str | None) -> Flops:
    """Return the FLOPs of a call by its batch size and its length, from the sum of its nodes."""
    counts = count_nodes(counted.graph, counted.bounds)
    total = sum_of(figure for count in counts if (figure := count.figure("flops")) is not None)

    def flops(size: int, length: int) -> float:
        return float(at(total, {**dict.fromkeys(firsts, size), **({length_dim: length} if length_dim else {})}))

    return flops
