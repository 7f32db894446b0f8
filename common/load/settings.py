"""Settings of a load test: made once of the user's values, and checked here."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from common.load.best_configuration import SearchSettings
from common.load.endpoint.address import Address, address_of
from common.load.endpoint.endpoint_model import Connections, EndpointModel, endpoint_model
from common.load.endpoint.endpoint_service import Caller, EndpointService, connect, described
from common.load.endpoint.tensors import TensorForm
from common.load.fleet import Bound, ModelTask
from common.load.generator.harness import MOST_WORKERS, Harness, prepare
from common.load.generator.wall_clock import Listener, nobody
from common.load.interference import ROUNDS
from common.load.requests.batching import NEVER_NS, BatchPolicy
from common.load.requests.demand import BURSTY, CONSTANT, POISSON, Demand, padded_length
from common.load.requests.lengths import Lengths
from common.load.requests.rate_profile import RateProfile
from common.load.requests.schedules import Arrivals, Bursts
from common.load.results.thresholds import LoadThresholds, Precision
from common.load.search.optimum import EVERY_FAILED, SearchTask
from common.load.service.concurrency import SHARING, Concurrency, every_concurrency
from common.load.service.served_model import ServedModel, SessionShape, served_model
from common.load.service.sessions import require_batches, warm_up
from common.messages.errors import UnusableValueError
from common.runtime.providers.provider_table import resolve_provider
from common.runtime.sessions.session import SessionSettings
from common.runtime.sessions.threads import usable_threads
from common.table_rows import LoadBestDocument, LoadSearchRow

FlagValues = Mapping[str, Any]  # by quantity; of the type that its flag reads
SEARCHED_BATCH = 16  # largest batch of a search that names none
LONGEST_ANSWER_S = 60.0  # of an endpoint, where no timeout is given
MOST_BATCH = 2**16  # a search doubles the batch up to the largest, and a call of more inputs would never end
ONE_LENGTH = ("users", "replay", "profile", "length_dim", "lengths", "buckets")  # no search tries these
SCHEDULE = ("rate", "arrivals", "burst")
SOURCES = ("users", "replay", "profile")  # a load has one of them, or the one rate
NEEDS = {  # what has an effect only with another one, where a test has both
    "think": "users",
    "batch_pad": "batch_max",
    "normalize": "images",
    "budget": "search",
    "p99_bound": "search",
    "post_token": "post",
    "cluster_address": "cluster",
}
REPLACES = {  # what leaves no effect to others
    "users": SCHEDULE,
    "replay": (*SCHEDULE, "duration", "input_tokens", "output_tokens"),
    "profile": ("rate", "burst", "duration", "until"),
    "search": (*SCHEDULE, "sessions", "batch_wait", "batch_preferred", "batch_pad"),
    "best": (*SCHEDULE, "sessions", "threads", "batch_max", "batch_wait", "batch_preferred", "batch_pad", *SHARING),
}


def checked(values: FlagValues, given: Collection[str]) -> FlagValues:
    """Return the values of quantities that go together; of users and a file, the one that a flag gives.

    Args:
        given: quantities that the command line gives; a quantity of the configuration may be without effect.

    Raises:
        UnusableValueError: two of them exclude each other, or one that is given has no effect.
    """
    for name in (name for name in values if name in given):
        if (needed := NEEDS.get(name)) and needed in values and not values[needed]:
            raise UnusableValueError(name, f"has no effect without <{needed}>", "leave it out")
        if other := next((other for other, idle in REPLACES.items() if name in idle and values.get(other)), ""):
            raise UnusableValueError(name, f"has no effect with <{other}>", "leave one of them out")
    if (values.get("batch_max") or 1) > MOST_BATCH:
        raise UnusableValueError("batch_max", f"is more than {MOST_BATCH:,} requests in one call", "give a smaller one")
    if "burst" in given and values["arrivals"] != "bursty":
        raise UnusableValueError("burst", f"has no effect on {values['arrivals']} arrivals", "give <arrivals> bursty")
    if "rate" in given and values.get("scenario", "server") != "server":
        problem = f"has no effect on the scenario {values['scenario']}, which sends as fast as it is answered"
        raise UnusableValueError("rate", problem, "leave it out")
    if values.get("best") and (name := next((name for name in ONE_LENGTH if values[name]), "")):
        problem = "is not for the best configuration, which was found with Poisson arrivals of one length"
        raise UnusableValueError(name, problem, "leave it out")
    sources = [name for name in SOURCES if values.get(name) is not None]
    chosen = [name for name in sources if name in given] or sources
    if len(chosen) > 1:
        raise UnusableValueError(", ".join(chosen), "exclude each other", "give one of them")
    if "profile" in chosen and values["arrivals"] == BURSTY:
        raise UnusableValueError("profile", "has no bursts", f"give <arrivals> {POISSON} or {CONSTANT}")
    return {**values, **dict.fromkeys(set(sources) - set(chosen))}


@dataclass(frozen=True, slots=True)
class RequestContent:
    """Inputs and answers of requests."""

    dimensions: Mapping[str, int]
    input_files: Mapping[str, Path]  # inputs from files; the others are random
    seed: int
    length_dim: str | None = None
    images: Path | None = None  # folder or file of the images that requests bring
    normalization: str = ""
    top_k: int | None = None  # likeliest classes that are answered

    @classmethod
    def of(cls, values: FlagValues) -> RequestContent:
        files = {name: Path(file) for name, file in values["input"]}
        optional = (values.get("length_dim"), values.get("images"), values.get("normalize", ""), values.get("top_k"))
        return cls(dict(values["dim"]), files, values["seed"], *optional)

    def model(self, path: Path, configured: Mapping[str, int], length: int = 0) -> ServedModel:
        """Return a model with such requests.

        Args:
            configured: sizes of dynamic dimensions, of lower precedence.
            length: the longest request; 0 where all have one size.
        """
        given = (self.dimensions, configured, self.input_files)
        model = served_model(path, *given, length_dim=self.length_dim, length=length, seed=self.seed)
        return model.with_side_work(self.images, self.normalization, self.top_k)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Everything that is asked of a load but its model: when requests come, how they are served, what must hold."""

    demand: Demand
    policy: BatchPolicy
    shape: SessionShape
    content: RequestContent
    thresholds: LoadThresholds
    precision: Precision | None = None

    @classmethod
    def of(cls, values: FlagValues) -> LoadSettings:
        """Return the load that checked values ask for; values that make none are refused."""
        threads = usable_threads(values["threads"] or None)
        each = threads if values["threads"] else max(1, threads // values["sessions"])
        load = (_demand(values), _policy(values), _shape(values, each), RequestContent.of(values))
        return cls(*load, thresholds(values), _precision(values))

    def on(self, path: Path, configured: Mapping[str, int]) -> ModelLoad:
        """Return the load of a model; no session exists yet.

        Raises:
            PipelineError: model, dimensions, inputs or arrivals are unusable.
        """
        arrivals = self.demand.schedule()
        length = padded_length(self.demand, arrivals, self.policy.buckets, self.content.length_dim)
        return ModelLoad(self, self.content.model(path, configured, length), arrivals, length)

    def beside(
        self, path: Path, dimensions: Mapping[str, int], configured: Mapping[str, int], rate_hz: float | None
    ) -> ModelLoad:
        """Return the load of another model, set up as this one, at the same rate if no other one is given.

        Args:
            dimensions: sizes of dynamic dimensions of the other model.
            configured: the same, of lower precedence.
        """
        try:
            model = served_model(path, dimensions, configured, {}, seed=self.content.seed)
        except UnusableValueError as error:
            quantities = ", ".join("with_dim" if name == "dim" else name for name in error.quantities)
            raise UnusableValueError(quantities, error.problem, error.remedy) from error
        demand = replace(self.demand, rate_hz=rate_hz or self.demand.rate_hz, seed=self.demand.seed + ROUNDS)
        return ModelLoad(replace(self, demand=demand, precision=None), model, demand.schedule())


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """A load whose model and inputs were read."""

    settings: LoadSettings
    model: ServedModel
    arrivals: Arrivals | None  # when requests come; None where that depends on answers
    length: int = 0  # the longest request; 0 where all have one size

    def harness(self, listener: Listener = nobody) -> Harness:
        """Return the warm service; the listener is called with each load when it begins."""
        asked = self.settings
        demand = (asked.demand, self.arrivals, asked.policy, asked.thresholds)
        return prepare(
            self.model, asked.shape, *demand, length=self.length, precision=asked.precision, listener=listener
        )


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    address: Address
    served_model: str
    version: str
    encoding: str  # how values are sent: ``bytes``, ``text``, or ``auto`` as the endpoint says
    connections: int
    dimensions: Mapping[str, int]  # sizes of free axes, by ``INPUT.AXIS``
    input_files: Mapping[str, Path]
    demand: Demand
    policy: BatchPolicy
    thresholds: LoadThresholds
    precision: Precision | None = None

    @classmethod
    def of(cls, values: FlagValues) -> EndpointSettings:
        """Return the load that checked values ask for; values that make none are refused."""
        for name in ("endpoint", "served_model"):
            if not values[name]:
                raise UnusableValueError(name, "is missing", "give the endpoint's address and the model's name there")
        if (count := values["connections"]) > MOST_WORKERS:
            problem = f"{count} are too many"
            raise UnusableValueError("connections", problem, f"a load test has {MOST_WORKERS:,} at most")
        address = address_of(values["endpoint"], values["endpoint_token"])
        if address.is_grpc and values["tensors"] == "text":
            raise UnusableValueError("tensors", "text, but gRPC sends bytes", "leave it out")
        named = (values["served_model"], values["served_version"], values["tensors"], count, dict(values["dim"]))
        files = {name: Path(file) for name, file in values["input"]}
        return cls(address, *named, files, _demand(values), _policy(values), thresholds(values), _precision(values))

    def on_endpoint(self) -> EndpointLoad:
        """Ask the endpoint for its model; no request of the load is sent yet.

        Raises:
            PipelineError: the endpoint does not answer, or arrivals or inputs are unusable.
        """
        arrivals = self.demand.schedule()
        padded_length(self.demand, arrivals, (), None)
        caller = self.connected(is_binary=True)
        metadata, takes_bytes = described(self.address, self.served_model, caller)
        caller.close()
        is_binary = takes_bytes if self.encoding == "auto" else self.encoding == "bytes"
        model = endpoint_model(str(self.address), metadata, self.dimensions, self.input_files, self.demand.seed)
        return EndpointLoad(self, model, arrivals, is_binary)

    def connected(self, *, is_binary: bool) -> Caller:
        timeout_ns = self.policy.timeout_ns
        timeout_s = LONGEST_ANSWER_S if timeout_ns == NEVER_NS else timeout_ns / 1e9
        return connect(self.address, self.served_model, self.version, timeout_s, is_binary=is_binary)


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """A load of an endpoint that said what its model takes."""

    settings: EndpointSettings
    model: EndpointModel
    arrivals: Arrivals | None  # when requests come; None where that depends on answers
    is_binary: bool  # whether values are sent as bytes

    def harness(self, listener: Listener = nobody) -> Harness:
        """Return the warm service; the listener is called with each load when it begins.

        Raises:
            PipelineError: the endpoint does not answer a request, or it takes no batches.
        """
        settings = self.settings
        connected = partial(settings.connected, is_binary=self.is_binary)
        service = EndpointService(self.model, connected, settings.connections)
        if settings.policy.most > 1 and not self.model.batched:
            problem = f"{settings.policy.most}, but no input of {settings.served_model} has a first axis of any size"
            raise UnusableValueError("batch_max", problem, "leave it out; <connections> are concurrent calls")
        require_batches(settings.served_model, service.inputs, settings.policy.most, service.worker_count)
        warm_up(service, settings.policy, 0)
        demand, setup = (settings.policy, settings.demand, self.arrivals), Connections(settings.connections)
        return Harness(service, *demand, self.model, setup, listener, settings.precision, settings.thresholds)

    @property
    def document(self) -> dict[str, object]:
        """What the endpoint says of its model, by the fields of load_endpoint."""
        metadata = self.model.metadata
        return {
            "endpoint": self.model.address,
            "served_model": metadata.name,
            "served_version": self.settings.version or None,
            "endpoint_platform": metadata.platform or None,
            "tensor_encoding": "bytes" if self.is_binary else "text",
            "endpoint_inputs": _spoken(metadata.inputs),
            "endpoint_outputs": _spoken(metadata.outputs),
        }


def _spoken(forms: Sequence[TensorForm]) -> dict[str, str]:
    return {form.name: f"{form.datatype} {[*form.shape]}" for form in forms}


def search_settings(values: FlagValues) -> SearchSettings:
    """Return what checked values ask of a search; more workers than a process has threads for are refused."""
    if (replicas := values["replicate"]) > MOST_WORKERS:
        raise UnusableValueError("replicate", f"{replicas} runs at a time", f"a load test has {MOST_WORKERS:,} at most")
    processors, bound = usable_threads(values["threads"]), _bound(values)
    priced = (values["usd_per_hour"], values["seed"], _concurrencies(values))
    asked = (bound.p99_us, bound.budget_s, bound.batch_max, processors)
    task = SearchTask(*asked, *priced, max_error_share=values["max_error_share"])
    return SearchSettings(task, _options(values, processors), values["replicate"])


def with_best(values: FlagValues, best: LoadBestDocument, trials: Sequence[LoadSearchRow]) -> FlagValues:
    """Return the values of quantities with the best configuration by rate, and the rate that it sustains.

    Where nothing meets the bound it is the trial whose p99 is nearest, or of those without too many failures the one
    with the lowest rate.

    Raises:
        UnusableValueError: too many requests failed in every trial.
    """
    sound = [trial for trial in trials if trial["validity"] != "failing"]
    lowest = min(sound, key=lambda trial: trial["offered_requests_per_s"] or math.inf, default=None)
    setup: Mapping[str, Any] | None = best["best_by"].get("rate") or best["nearest"] or lowest
    if setup is None:
        problem = f"the search chose nothing: {EVERY_FAILED} ({best['failing_trial_reason']})"
        raise UnusableValueError("best", problem, "leave it out")
    return {
        **values,
        "goodput_bound": values["goodput_bound"] or best["bound_us"] / 1e6,
        "workers": (setup["session_workers"],),
        "pool": (setup["thread_pool"],),
        "execution": (setup["execution_mode"],),
        "inter_threads": (setup["inter_op_threads"],) if setup["inter_op_threads"] else (),
        "spinning": (setup["spinning"],),
        "affinity": (setup["affinity"],),
        "arrivals": POISSON,
        "rate": setup.get("sustained_requests_per_s") or setup["offered_requests_per_s"],
        "batch_max": setup["batch_max_count"],
        "batch_wait": setup["batch_wait_us"] / 1e6,
        "batch_preferred": (),
        "batch_pad": False,
        "sessions": setup["session_count"],
        "threads": setup["threads"],
    }


def fleet_task(values: FlagValues) -> ModelTask:
    """Return what checked values ask of each model of a fleet; path and content of its file are still missing."""
    load = (_demand(values), _policy(values), _shape(values, values["threads"] or 0), thresholds(values))
    return ModelTask(Path(), {}, dict(values["dim"]), {}, *load, _bound(values) if values["search"] else None)


def matrix_options(values: FlagValues) -> SessionSettings:
    return SessionSettings(usable_threads(values["threads"]), optimization=values["optimization"])


def thresholds(values: FlagValues) -> LoadThresholds:
    """Return what is asked of a load; where a bound of p99 is asked for, goodput is within it."""
    p99_bound_s = values.get("p99_bound") if values.get("search", True) else None
    bound_s = values.get("goodput_bound") or p99_bound_s
    return LoadThresholds(values["max_error_share"], 1e6 * bound_s if bound_s else None, values.get("min_goodput"))


def _bound(values: FlagValues) -> Bound:
    return Bound(1e6 * values["p99_bound"], values["budget"], values["batch_max"] or SEARCHED_BATCH)


def _demand(values: FlagValues) -> Demand:
    """Return which requests come; LoadGen's scenarios make their own arrivals of rate and seed."""
    if values.get("lengths") and values.get("replay"):
        raise UnusableValueError("lengths", "cannot be combined with <replay>", "the file has a column of lengths")
    demand = Demand(values["rate"], values["duration"], values["seed"])
    if "arrivals" not in values:
        return demand
    return replace(
        demand,
        kind=values["arrivals"],
        bursts=Bursts.parse(values["burst"]),
        profile=RateProfile.of(values["profile"]) if values.get("profile") else None,
        file=values.get("replay"),
        users=values.get("users"),
        think_s=values.get("think") or 0.0,
        lengths=Lengths.parse(values["lengths"]) if values.get("lengths") else None,
    )


def _precision(values: FlagValues) -> Precision | None:
    return Precision.parse(values["until"]) if values.get("until") else None


def _policy(values: FlagValues) -> BatchPolicy:
    return BatchPolicy(
        values["batch_max"] or 1,
        round(1e9 * (values["batch_wait"] or 0)),
        values["batch_preferred"],
        values.get("buckets", ()),
        values["batch_pad"],
        capacity=values["queue_max"] or NEVER_NS,
        timeout_ns=round(1e9 * values["timeout"]) if values["timeout"] else NEVER_NS,
    )


def _options(values: FlagValues, threads: int) -> SessionSettings:
    return SessionSettings(threads, resolve_provider(values["provider"]), values["optimization"])


def _concurrencies(values: FlagValues) -> list[Concurrency]:
    several = (values["workers"], values["pool"], values["execution"], values["inter_threads"])
    return every_concurrency(*several, values["spinning"], values["affinity"])


def _concurrency(values: FlagValues) -> Concurrency:
    """Return the one way in which sessions share the host; several ways are refused."""
    concurrency, *others = _concurrencies(values)
    if others:
        names = (name for name in (*SHARING, "inter_threads") if len(values[name]) > 1)
        remedy = "give one value each; <load_best> compares several"
        raise UnusableValueError(", ".join(names), "are several ways to share the host", remedy)
    return concurrency


def _shape(values: FlagValues, threads: int) -> SessionShape:
    return SessionShape(values["sessions"], _options(values, threads), _concurrency(values), values["replicate"])
