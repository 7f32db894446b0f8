"""Figures of a load by their column names: per request, per batch, and of the whole load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.latency.statistics import FIGURES, QUANTILES, counts_for_limits, figures, ordered_percentile
from common.latency.steady_state import SteadyState, steady_state
from common.load.requests.batching import NEVER_NS, BatchPolicy
from common.load.requests.load_record import COMPLETED, OUTCOMES, LoadRecord, error_share
from common.load.requests.rate_profile import RateStep
from common.load.results.thresholds import USUAL_THRESHOLDS, LoadThresholds, Precision
from common.load.results.validity import (
    NS_PER_US,
    LoadValidity,
    delay_share,
    depths,
    judge,
    latency_factor,
    undelayed_us,
    utilization,
    widened_columns,
)

Samples = npt.NDArray[np.float64]
Flops = Callable[[int, int], float]  # of a batch size and a length
LEAST_LEVEL_BATCHES = 5  # of a size, to say what its batches usually take
# Stages of a call, in their order; a service has those that it needs.
STAGES = (
    *("decode", "resize", "normalize", "assemble", "host_to_device", "session_run", "device_to_host", "postprocess"),
    "round_trip",
)
COPIES, RUN = ("host_to_device", "device_to_host"), "session_run"
NO_COPIES = "the provider computes in host memory: nothing is copied to a device"
NO_LATENCIES: dict[str, float | None] = dict.fromkeys(
    [f"request_{name}{end}_us" for name in FIGURES for end in ("", "_low", "_high")]
    + ["request_min_us", "request_max_us"]
)


@dataclass(frozen=True, slots=True)
class LoadTest:
    """A record with what was asked for."""

    record: LoadRecord
    policy: BatchPolicy
    worker_count: int
    is_open: bool  # whether the requests came by a schedule
    flops: Flops | None = None  # FLOPs of one call by its batch size and length; None where they are unknown
    precision: Precision | None = None  # what may end the load before its time; None: nothing does
    thresholds: LoadThresholds = USUAL_THRESHOLDS
    steps: tuple[RateStep, ...] = ()  # parts of the load for which a rate was asked

    @property
    def validity(self) -> LoadValidity:
        most_running, max_share = self.worker_count * self.policy.most, self.thresholds.max_error_share
        return judge([self.record], is_open=self.is_open, most_running=most_running, max_error_share=max_share)

    @property
    def latency_factor(self) -> float:
        """Least variance factor of the latencies; see :mod:`common.latency.dependence`."""
        return latency_factor(self.record, self.worker_count, is_open=self.is_open)


def _us(times_ns: npt.NDArray[np.int64]) -> Samples:
    return np.asarray(times_ns / NS_PER_US)


def request_columns(record: LoadRecord, warmup_count: int = 0) -> dict[str, object]:
    """Return the columns of load_requests: when each request was intended, queued, batched, started and ended."""
    is_batched, batches, index = record.is_served, record.batches, record.batch_indices

    def of_batch(times_ns: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> Samples:
        return np.where(known, _us(times_ns[index]) if len(times_ns) else 0.0, np.nan)

    is_done = record.outcomes == COMPLETED
    latency_us = np.full(len(record), np.nan)
    latency_us[record.is_waited] = record.waited_us
    return {
        "request_index": np.arange(len(record)),
        "outcome": np.array(OUTCOMES)[record.outcomes],
        "is_warmup_request": np.arange(len(record)) < warmup_count,
        "request_length": record.lengths,
        "load_batch_index": [*map(int, index)] if is_batched.all() else [None if i < 0 else int(i) for i in index],
        "queue_depth_count": depths(record, record.intended_ns),
        "intended_us": _us(record.intended_ns),
        "queued_us": _us(record.queued_ns),
        "batched_us": of_batch(batches.batched_ns, is_batched),
        "started_us": of_batch(batches.started_ns, is_batched),
        "ended_us": of_batch(batches.ended_ns, is_batched & (record.outcomes != OUTCOMES.index("cancelled"))),
        "request_latency_us": latency_us,
        **{
            f"{name}_us": of_batch(spent_ns, is_done) if spent_ns is not None else np.full(len(record), np.nan)
            for name, spent_ns in stages_ns(record).items()
        },
    }


def stages_ns(record: LoadRecord) -> dict[str, npt.NDArray[np.int64] | None]:
    """Return what each of ``STAGES`` took, by batch; None for one that the service does not have."""
    own = dict(zip(record.stages, record.batches.stages_ns.T, strict=True))
    return {name: own.get(name) for name in STAGES}


def batch_columns(test: LoadTest) -> dict[str, object]:
    """Return the columns of load_batches: how each batch was formed and padded, and what it took."""
    record, batches = test.record, test.record.batches
    oldest_ns = np.full(len(batches.sizes), NEVER_NS)
    np.minimum.at(oldest_ns, record.batch_indices[record.is_served], record.intended_ns[record.is_served])
    return {
        "load_batch_index": np.arange(len(batches.sizes)),
        "worker_index": batches.workers,
        "request_count": batches.sizes,
        "padded_request_count": batches.padded_sizes,
        "padded_length": batches.lengths,
        "batched_us": _us(batches.batched_ns),
        "started_us": _us(batches.started_ns),
        "ended_us": _us(batches.ended_ns),
        "formation_us": _us(batches.batched_ns - oldest_ns),
        "generator_late_us": _us(batches.batched_ns - batches.ready_ns),
        **{
            f"{name}_us": [None] * len(batches.sizes) if spent_ns is None else _us(spent_ns)
            for name, spent_ns in stages_ns(record).items()
        },
        "padding_share": _padding(test, _tokens),
        "padding_flops_share": _padding(test, test.flops) if test.flops else [None] * len(batches.sizes),
    }


def _padding(test: LoadTest, work: Flops) -> Samples:
    """Return for each batch the share of its work that no request asked for."""
    record, batches, is_served = test.record, test.record.batches, test.record.is_served
    lengths, inverse = np.unique(record.lengths[is_served], return_inverse=True)
    single = np.array([work(1, int(length)) for length in lengths], float)
    wanted = np.bincount(record.batch_indices[is_served], single[inverse], minlength=len(batches.sizes))
    shapes, inverse = np.unique(np.stack([batches.padded_sizes, batches.lengths]), axis=1, return_inverse=True)
    done = np.array([work(int(size), int(length)) for size, length in shapes.T], float)[inverse]
    return np.asarray(np.maximum(0.0, 1 - wanted / np.maximum(done, 1)))


def compute_us(record: LoadRecord) -> Samples:
    return _us(record.batches.ended_ns - record.batches.started_ns)


def steady(record: LoadRecord) -> SteadyState:
    """Find from which batch on the service is steady.

    It is sought in what batches take over the usual time of their size, not in the latencies: a queue that fills and
    empties is what a load is about, and no warm-up.
    """
    batches = record.batches
    shapes, inverse = np.unique(np.stack([batches.padded_sizes, batches.lengths]), axis=1, return_inverse=True)
    spent_us = compute_us(record)
    ratios = np.full(len(spent_us), np.nan)
    for shape in range(shapes.shape[1]):
        same = inverse == shape
        if same.sum() >= LEAST_LEVEL_BATCHES:
            ratios[same] = spent_us[same] / max(float(np.median(spent_us[same])), 1e-3)
    known = np.flatnonzero(~np.isnan(ratios))
    if not len(known):
        return SteadyState("no steady state", None, ())
    state = steady_state(1e3 * ratios[known])
    return SteadyState(state.kind, None if state.start_index is None else int(known[state.start_index]), state.segments)


def warmup_count(record: LoadRecord, state: SteadyState) -> int:
    """Return how many requests came before the steady part; 0 where there is none, as all count then."""
    if not state.start_index:
        return 0
    return int(np.searchsorted(record.intended_ns, record.batches.started_ns[state.start_index]))


def counted_latencies_us(record: LoadRecord, first: int) -> Samples:
    """Return the latencies that count: what callers waited, from the first steady request on."""
    return record.waited_us[int(record.is_waited[:first].sum()) :]


def is_precise(test: LoadTest) -> bool:
    if test.precision is None or test.validity.status != "valid":
        return False
    share = _reached_share(test, warmup_count(test.record, steady(test.record)))
    return share is not None and share <= test.precision.most_share


def _reached_share(test: LoadTest, first: int) -> float | None:
    counted_us = counted_latencies_us(test.record, first)
    if test.precision is None or not len(counted_us):
        return None
    return test.precision.reached_share(counted_us, test.latency_factor)


def counted_figures(test: LoadTest, validity: LoadValidity, first: int) -> dict[str, object]:
    """Return how many requests there were, and the latencies from one on; none where these do not count."""
    record, counts = test.record, test.record.counts
    counted = counted_latencies_us(record, first)
    is_judged = validity.status == "valid" and len(counted) > 0
    undelayed = undelayed_us(record)[len(record.waited_us) - len(counted) :]
    return {
        "validity": validity.status,
        "validity_reason": validity.reason,
        "sent_count": len(record),
        **{f"{name}_count": counts[name] for name in ("completed", "rejected", "failed", "cancelled")},
        "utilization_share": utilization(record, test.worker_count) if len(record) else None,
        "warmup_request_count": first,
        "counted_request_count": len(counted),
        **(request_figures(counted, undelayed, test.latency_factor) if is_judged else NO_LATENCIES),
    }


def summary(test: LoadTest, state: SteadyState) -> dict[str, object]:
    """Return the figures of a load; an overloaded or invalid one has no percentiles."""
    record, first = test.record, warmup_count(test.record, state)
    counted = counted_figures(test, test.validity, first)
    is_judged = counted["validity"] == "valid" and counted["counted_request_count"] != 0
    limits = counts_for_limits(counted_latencies_us(record, first), test.latency_factor) if is_judged else {}
    batches, late_us = record.batches, _us(record.late_ns)
    waits = depths(record, record.intended_ns)
    return {
        **counted,
        "is_interrupted": record.is_interrupted,
        "precision_goal": str(test.precision or ""),
        "precision_reached_share": _reached_share(test, first) if is_judged else None,
        "expired_count": record.expired_count,
        "failure_reasons": dict(record.failures),
        "offered_requests_per_s": record.offered_hz,
        "answered_requests_per_s": record.answered_hz,
        "error_share": error_share([record]),
        "max_error_share": test.thresholds.max_error_share,
        "goodput_requests_per_s": goodput_hz(test),
        "goodput_bound_us": test.thresholds.bound_us,
        "generator_late_share": record.late_share,
        "generator_delay_share": delay_share([record]),
        "generator_late_p99_us": float(np.quantile(late_us, 0.99)) if len(late_us) else None,
        "mean_queue_depth_count": float(waits.mean()) if len(waits) else None,
        "most_queue_depth_count": int(waits.max()) if len(waits) else None,
        "load_batch_count": len(batches.sizes),
        "mean_request_count": float(batches.sizes.mean()) if len(batches.sizes) else None,
        **_padding_figures(test),
        "batch_steady_state": state.kind,
        "counts_for_limits": limits,
        **_queueing(record, first if is_judged else None),
        "latency_shares": latency_shares(record, first),
        "copy_overlap_share": overlap_share(record, COPIES, RUN),
        "device_copies_unavailable": None if {*COPIES} & {*record.stages} else NO_COPIES,
    }


def goodput_hz(test: LoadTest) -> float:
    """Return the requests per second that were answered within the bound.

    It is their share at the rate of a schedule, which no answer changes; else their count until the last answer.
    """
    record, is_good = test.record, test.thresholds.is_good(test.record)
    if test.is_open and (offered_hz := record.offered_hz):
        return test.thresholds.good_share(record) * offered_hz
    return float(is_good.sum()) / record.answering_s if is_good.any() else 0.0


def _padding_figures(test: LoadTest) -> dict[str, float | None]:
    """Return the shares of the tokens and of the FLOPs of all batches that no request asked for."""
    batches = test.record.batches
    calls = [*zip(batches.padded_sizes.tolist(), batches.lengths.tolist(), strict=True)]
    works = {"padding_share": _tokens, "padding_flops_share": test.flops}
    return {
        name: float(np.average(_padding(test, work), weights=[work(*call) for call in calls]))
        if work and calls
        else None
        for name, work in works.items()
    }


def _tokens(size: int, length: int) -> float:
    return size * max(1, length)


def request_figures(counted_us: Samples, undelayed: Samples, least_factor: float) -> dict[str, float | None]:
    """Return percentiles, mean and deviation of the request latencies, each with its limits."""
    found = figures(counted_us, least_factor)
    if (counted_us != undelayed).any():
        found = widened_columns(found, figures(undelayed, least_factor))
    return {f"request_{name}": value for name, value in found.items()}


def _queueing(record: LoadRecord, first: int | None) -> dict[str, float | None]:
    """Return median and 99th percentile of the time that requests waited for their batch to start."""
    if first is None:
        return {"queue_p50_us": None, "queue_p99_us": None}
    done = np.flatnonzero(record.is_completed)
    done = done[done >= first]
    waited_us = _us(record.batches.started_ns[record.batch_indices[done]] - record.intended_ns[done])
    ordered = np.sort(waited_us)
    return {f"queue_{name}_us": ordered_percentile(ordered, QUANTILES[name]).value for name in ("p50", "p99")}


def latency_shares(record: LoadRecord, first: int = 0) -> dict[str, float]:
    """Return the share of each stage in the latency of answered requests; a request waits for its whole batch."""
    done = np.flatnonzero(record.is_completed)
    done = done[done >= first]
    batches, index = record.batches, record.batch_indices[done]
    spent = {name: float(taken[index].sum()) for name, taken in stages_ns(record).items() if taken is not None}
    whole = float((batches.ended_ns[index] - record.intended_ns[done]).sum())
    queue = float((batches.batched_ns[index] - record.intended_ns[done]).sum())
    dispatch = float((batches.started_ns - batches.batched_ns)[index].sum())
    parts = {"queue": queue, "dispatch": dispatch, **spent}
    parts["rest"] = whole - sum(parts.values())
    return {name: part / whole for name, part in parts.items()} if whole else {}


def overlap_share(record: LoadRecord, names: Sequence[str], other: str) -> float | None:
    """Return the share of the time of some stages in which another worker was in another stage; None for no time.

    A worker goes through its stages one after the other, so it never overlaps itself.
    """
    begins, ends = _spans(record, [other])
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])  # of a union: the gaps begin where all have ended
    own_begins, own_ends = _spans(record, names)
    whole = float((own_ends - own_begins).sum())
    if not whole:
        return None
    gaps = np.maximum(0, begins[1:] - ends[:-1])
    free_before = np.concatenate([[0], np.cumsum(gaps)])

    def busy_until(times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return for how long, up to each time, any worker was in the other stage."""
        last = np.searchsorted(begins, times, side="right") - 1
        reached = np.minimum(times, ends[np.maximum(last, 0)])
        return np.where(last < 0, 0, reached - begins[0] - free_before[np.maximum(last, 0)])

    return float((busy_until(own_ends) - busy_until(own_begins)).sum()) / whole


def _spans(record: LoadRecord, names: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return when some stages of all batches began and ended."""
    batches, columns = record.batches, [record.stages.index(name) for name in names if name in record.stages]
    ends = batches.started_ns[:, np.newaxis] + np.cumsum(batches.stages_ns, axis=1)
    begins = ends - batches.stages_ns
    return begins[:, columns].ravel(), ends[:, columns].ravel()
