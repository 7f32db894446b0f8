"""What a timeline leaves out, so that its file stays below 20 MB whatever was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from common.latency.run import NodeSpan
from common.timeline.shown_runs import Shown

# An event takes 110 to 170 bytes, that of a disturbance up to 300; what is known of a node takes some 500 more.
MOST_RUNS, MOST_DISTURBANCES, MOST_SAMPLES, MOST_NODE_EVENTS, MOST_FACTS = 20_000, 10_000, 20_000, 20_000, 8_000
Part = TypeVar("Part")
Intervals = Sequence[tuple[float, float]]  # start and end in µs


def few_node_events(shown: Sequence[Shown]) -> list[Shown]:
    """Return the shown runs; of too many nodes, those of the median run alone, and if need be without its bodies."""
    if event_count(shown) <= MOST_NODE_EVENTS:
        return [*shown]
    middle = [run for run in shown if "median" in run.role][:1] or shown[:1]
    if event_count(middle) <= MOST_NODE_EVENTS:
        return [*middle]
    return [replace(run, spans=[*_outermost(run.spans)]) for run in middle]


def event_count(shown: Iterable[Shown]) -> int:
    """Return how many node events some runs have."""
    return sum(len(run.spans) for run in shown)


def _outermost(spans: Iterable[NodeSpan]) -> Iterator[NodeSpan]:
    """Yield the spans that lie in no other one of their thread."""
    reached_us: dict[int | None, float] = {}
    for span in sorted(spans, key=lambda span: (span.start_us, -span.end_us)):
        if span.start_us >= reached_us.get(span.thread_id, span.start_us):
            reached_us[span.thread_id] = span.end_us
            yield span


def few(parts: Sequence[Part], time_us: Callable[[Part], float], shown: Intervals, most: int) -> list[Part]:
    """Return all parts; where there are too many, those that begin within the shown intervals, the first ``most``."""
    if len(parts) <= most:
        return [*parts]
    return [part for part in parts if any(start <= time_us(part) < end for start, end in shown)][:most]


def left_out_notes(whole: Mapping[str, int], kept: Mapping[str, int]) -> list[str]:
    """Return a note that says how many of what were left out; none where nothing was."""
    missing = (f"{whole[name] - count} of {whole[name]} {name}" for name, count in kept.items() if count < whole[name])
    text = ", ".join(missing)
    return [f"the timeline leaves out {text}: its file would be too large for a viewer"] if text else []
