"""The profiled runs whose nodes a timeline shows, and what it leaves out so that its file stays below 20 MB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import TypeVar

from common.latency.run import NodeSpan
from common.messages.errors import PipelineError
from common.table_rows import RunLatencyRow

# An event takes 110 to 170 bytes, that of a disturbance up to 300; what is known of a node takes some 500 more.
MOST_RUNS, MOST_DISTURBANCES, MOST_SAMPLES, MOST_NODE_EVENTS, MOST_FACTS = 20_000, 10_000, 20_000, 20_000, 8_000
Part = TypeVar("Part")
Intervals = Sequence[tuple[float, float]]  # start and end in µs


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A profiled run whose nodes are shown; ``role`` says why."""

    run_index: int
    role: str
    spans: Sequence[NodeSpan]


def chosen_runs(runs: Iterable[RunLatencyRow], *, every: bool) -> tuple[dict[int, str], list[tuple[float, float]]]:
    """Return the runs to show, see :func:`choose_runs`, and the start in s and duration in µs of all profiled ones."""
    profiled = [row for row in runs if row["is_profiled"]]
    latencies_us, warmup_count = [row["latency_us"] for row in profiled], sum(row["is_warmup"] for row in profiled)
    roles = choose_runs(latencies_us, warmup_count, every=every)
    return roles, [(1e-6 * row["start_us"], row["latency_us"]) for row in profiled]


def choose_runs(latencies_us: Sequence[float], warmup_count: int, *, every: bool = False) -> dict[int, str]:
    """Return the first run, and the median and the slowest one after the warm-up, by index with their roles.

    With ``every``, all other runs follow, without a role.

    Raises:
        PipelineError: there is no run.
    """
    if not latencies_us:
        raise PipelineError("<run_latency>", "holds no profiled run", "measure again")
    counted = [*enumerate(latencies_us)][warmup_count:] or [*enumerate(latencies_us)]
    middle = median_low(latency_us for _, latency_us in counted)
    roles: dict[int, list[str]] = {0: ["first"]}
    roles.setdefault(next(index for index, latency_us in counted if latency_us == middle), []).append("median")
    roles.setdefault(max(counted, key=lambda run: run[1])[0], []).append("slowest")
    named = {index: ", ".join(names) for index, names in sorted(roles.items())}
    return {index: named.get(index, "") for index in range(len(latencies_us))} if every else named


def limited_node_events(shown: Sequence[ShownRun]) -> list[ShownRun]:
    """Return the shown runs; if they have too many nodes, the median run alone, and if necessary without its bodies."""
    if event_count(shown) <= MOST_NODE_EVENTS:
        return [*shown]
    middle = [run for run in shown if "median" in run.role][:1] or shown[:1]
    if event_count(middle) <= MOST_NODE_EVENTS:
        return [*middle]
    return [replace(run, spans=[*_outermost(run.spans)]) for run in middle]


def event_count(shown: Iterable[ShownRun]) -> int:
    return sum(len(run.spans) for run in shown)


def _outermost(spans: Iterable[NodeSpan]) -> Iterator[NodeSpan]:
    """Yield the spans that are in no other one of their thread."""
    reached_us: dict[int | None, float] = {}
    for span in sorted(spans, key=lambda span: (span.start_us, -span.end_us)):
        if span.start_us >= reached_us.get(span.thread_id, span.start_us):
            reached_us[span.thread_id] = span.end_us
            yield span


def limited(parts: Sequence[Part], time_us: Callable[[Part], float], shown: Intervals, most: int) -> list[Part]:
    """Return all parts; if there are too many, the first ``most`` that begin within the shown intervals."""
    if len(parts) <= most:
        return [*parts]
    return [part for part in parts if any(start <= time_us(part) < end for start, end in shown)][:most]


def left_out_notes(whole: Mapping[str, int], kept: Mapping[str, int]) -> list[str]:
    """Return a note with the numbers and kinds of left-out parts; none if nothing was left out."""
    missing = (f"{whole[name] - count} of {whole[name]} {name}" for name, count in kept.items() if count < whole[name])
    text = ", ".join(missing)
    return [f"the timeline leaves out {text}: its file would be too large for a viewer"] if text else []
