"""From what is asked for, by the names of its quantities, to a demand, a policy, sessions, and a service of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.errors import UnusableValueError
from common.load.fleet import Bound, ModelTask
from common.load.generator.harness import Prepared, prepare
from common.load.generator.wall_clock import Listener, nobody
from common.load.interference import ROUNDS
from common.load.requests.batching import NEVER_NS, BatchPolicy
from common.load.requests.demand import Demand, padded_length
from common.load.requests.lengths import Lengths
from common.load.requests.schedules import Bursts
from common.load.service.concurrency import SHARING, Concurrency, every_concurrency
from common.load.service.served_model import ServedModel, SessionShape, served_model
from common.runtime.provider_table import resolve_provider
from common.runtime.session import SessionSettings
from common.runtime.threads import usable_threads

Asked = Mapping[str, Any]  # values by the names of their quantities
WHOLE = ("replay", "scenario", "with_model")  # a load of these is not divided
SEARCHED_BATCH = 16  # largest batch of a search that names none
# What a search chooses, or does not try.
NOT_SEARCHED = ("users", "replay", "length_dim", "lengths", "buckets")
ONE_MODEL = ("replay", "users", "lengths", "length_dim", "buckets", "images", "top_k", "scenario", "provider_matrix")
ONE_HOST = ("usd_per_hour", "avg_power_w")  # what one host costs, and takes under one load


def demand_of(asked: Asked) -> Demand:
    """Return which requests come; of a long load, those of its first part.

    Raises:
        UnusableValueError: they contradict each other.
    """
    if asked["lengths"] and asked["replay"]:
        raise UnusableValueError("lengths", "cannot be combined with <replay>", "the file has a column of lengths")
    lengths = Lengths.parse(asked["lengths"]) if asked["lengths"] else None
    duration_s = asked["part"] if is_long(asked) else asked["duration"]
    rest = (asked["arrivals"], Bursts.parse(asked["burst"]), asked["replay"], asked["users"], asked["think"] or 0.0)
    return Demand(asked["rate"], duration_s, asked["seed"], *rest, lengths)


def is_long(asked: Asked) -> bool:
    """Whether the load is measured part by part."""
    is_divided = not any(asked[name] is not None for name in WHOLE)
    return is_divided and bool(asked["duration"] >= 2 * asked["part"])


def policy_of(asked: Asked) -> BatchPolicy:
    """Return how requests are batched."""
    return BatchPolicy(
        asked["batch_max"] or 1,
        round(1e9 * (asked["batch_wait"] or 0)),
        asked["batch_preferred"],
        asked["buckets"],
        asked["batch_pad"],
        capacity=asked["queue_max"] or NEVER_NS,
        timeout_ns=round(1e9 * asked["timeout"]) if asked["timeout"] else NEVER_NS,
    )


def options_of(asked: Asked, threads: int) -> SessionSettings:
    """Return how a session of so many threads is set up."""
    return SessionSettings(threads, resolve_provider(asked["provider"]), asked["optimization"])


def concurrencies_of(asked: Asked) -> list[Concurrency]:
    """Return the ways in which sessions may share the host."""
    several = (asked["workers"], asked["pool"], asked["execution"], asked["inter_threads"])
    return every_concurrency(*several, asked["spinning"], asked["affinity"])


def concurrency_of(asked: Asked) -> Concurrency:
    """Return the one way in which sessions share the host.

    Raises:
        UnusableValueError: they may share it in several ways.
    """
    kind, *others = concurrencies_of(asked)
    if others:
        names = (name for name in (*SHARING, "inter_threads") if len(asked[name]) > 1)
        problem, remedy = "are several ways to share the host", "give one value each, or <search> for one model"
        raise UnusableValueError(", ".join(names), problem, remedy)
    return kind


def shape_of(asked: Asked) -> SessionShape:
    """Return how many sessions answer, and how they are set up.

    Raises:
        UnusableValueError: they may share the host in several ways.
    """
    kind, share = concurrency_of(asked), max(1, usable_threads(None) // asked["sessions"])
    threads = usable_threads(asked["threads"]) if asked["threads"] else share
    return SessionShape(asked["sessions"], options_of(asked, threads), kind, asked["replicate"])


def model_of(path: Path, configured: Mapping[str, int], asked: Asked, length: int = 0) -> ServedModel:
    """Return a model, and requests of a length.

    Args:
        path: its file.
        configured: sizes of dynamic dimensions, of lower precedence than what is asked for.
        asked: what is asked for.
        length: the longest request; 0 where all have one size.
    """
    files = {name: Path(file) for name, file in asked["input"]}
    requests = {"length_dim": asked["length_dim"], "length": length, "seed": asked["seed"]}
    model = served_model(path, dict(asked["dim"]), configured, files, **requests)
    return model.with_side_work(asked["images"], asked["normalize"], asked["top_k"])


def prepared_of(
    path: Path, configured: Mapping[str, int], asked: Asked, listener: Listener = nobody
) -> tuple[ServedModel, Prepared]:
    """Return a model, and its service, ready for the demand; ``listener`` is told of each run when it begins.

    The other arguments are those of :func:`model_of`.
    """
    demand, policy, shape = demand_of(asked), policy_of(asked), shape_of(asked)
    arrivals = demand.schedule()
    length = padded_length(demand, arrivals, policy.buckets, asked["length_dim"])
    model = model_of(path, configured, asked, length)
    prepared = prepare(model, demand, arrivals, policy, shape, length)
    return model, replace(prepared, listener=listener)


def beside(path: Path, configured: Mapping[str, int], asked: Asked, prepared: Prepared) -> Prepared:
    """Return the service of another model under requests of its own rate, set up as the first one's.

    Raises:
        UnusableValueError: requests have lengths, or a dimension of the other model is unusable.
    """
    if asked["length_dim"]:
        raise UnusableValueError("with_model", "takes requests of one length", "leave out <length_dim>")
    try:
        model = served_model(path, dict(asked["with_dim"]), configured, {}, seed=asked["seed"])
    except UnusableValueError as error:
        quantities = ", ".join("with_dim" if name == "dim" else name for name in error.quantities)
        raise UnusableValueError(quantities, error.problem, error.remedy) from error
    demand = replace(prepared.demand, rate_hz=asked["with_rate"] or asked["rate"], seed=asked["seed"] + ROUNDS)
    return prepare(model, demand, demand.schedule(), prepared.policy, prepared.shape, 0)


def task_of(asked: Asked) -> ModelTask:
    """Return what is the same for all models of a fleet.

    Raises:
        UnusableValueError: something is asked for that is of one model.
    """
    if name := next((name for name in (*ONE_MODEL, *ONE_HOST, "input") if asked[name]), ""):
        raise UnusableValueError(name, "is not for several models", "leave it out, or measure one model at a time")
    bound = Bound(1e6 * asked["p99_bound"], asked["budget"], asked["batch_max"] or SEARCHED_BATCH)
    sessions = (asked["sessions"], concurrency_of(asked), asked["replicate"])
    demand = replace(demand_of(asked), duration_s=asked["duration"])
    options = options_of(asked, asked["threads"] or 0)
    found = bound if asked["search"] else None
    return ModelTask(Path(), {}, dict(asked["dim"]), {}, demand, policy_of(asked), options, *sessions, found)
