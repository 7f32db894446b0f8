"""The timeline of a measurement, from the rows of its tables."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.latency.run import NodeSpan
from common.timeline.chrome_trace import ChromeTrace, CounterValue, Process, Slice

MOST_RUNS = 20_000  # more run slices than a viewer shows
Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]  # rows by the name of their table; a table that is missing has none
# What a node's slice says of it, by the column that says it.
NODE_FACTS = (
    *("op_type", "source_nodes", "node_latency_us", "latency_share", "macs", "flops", "bytes"),
    *("bound", "roof_share", "is_above_roof", "energy_uj", "energy_source"),
)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the timeline of a measurement shows.

    Attributes:
        runs: the runs, by the series that they belong to.
        nodes: executed nodes of some runs, by provider.
        disturbances: what the operating system did meanwhile.
        samples: power, processors, memory, clocks.
        chain: slices of ``nodes`` on the critical path, in their order.
    """

    runs: Sequence[Slice]
    nodes: Sequence[Slice]
    disturbances: Sequence[Slice]
    samples: Sequence[CounterValue]
    chain: Sequence[Slice]

    def trace(self) -> ChromeTrace:
        """Return it for a viewer."""
        host = Process("host", self.disturbances, self.samples)
        processes = (Process("runs", self.runs), Process("executed nodes", self.nodes), host)
        return ChromeTrace(processes, self.chain, "critical path")


@dataclass(frozen=True, slots=True)
class Shown:
    """A profiled run whose nodes are shown; ``role`` says why."""

    run_index: int
    role: str
    spans: Sequence[NodeSpan]


def timeline(tables: Tables, shown: Sequence[Shown]) -> Timeline:
    """Return the timeline of a measurement.

    Args:
        tables: those of the measurement that are there; without run_latency there are no runs.
        shown: the profiled runs whose nodes are shown.
    """
    by_index, nodes, runs = {run.run_index: run for run in shown}, _nodes(tables), tables.get("run_latency", ())
    slices = {run.run_index: [_node_slice(span, run, nodes) for span in run.spans] for run in shown}
    if len(runs) > MOST_RUNS:
        runs = [row for row in runs if row["is_profiled"] and row["run_index"] in by_index]
    slow = _slow_runs(tables.get("run_disturbances", ()))
    return Timeline(
        runs=[_run_slice(row, by_index, slow) for row in runs],
        nodes=[part for parts in slices.values() for part in parts],
        disturbances=[_event_slice(row) for row in _during(tables.get("os_events", ()), runs)],
        samples=[*_samples(tables)],
        chain=_chain(shown, slices, [row["executed_node"] for row in tables.get("critical_path", ())]),
    )


def _nodes(tables: Tables) -> dict[str, Row]:
    """Return what the tables tell of each executed node, by name."""
    nodes: dict[str, dict[str, Any]] = {}
    for name in ("op_latency", "op_roofline", "ops_profile"):
        for row in tables.get(name, ()):
            nodes.setdefault(row["executed_node"], {}).update(row)
    return dict(nodes)


def _slow_runs(rows: Iterable[Row]) -> dict[tuple[bool, int], str]:
    """Return what slowed a run down, by whether it is profiled and its index."""
    return {(row["is_profiled"], row["run_index"]): row["disturbance_cause"] or "unknown" for row in rows}


def _samples(tables: Tables) -> Iterator[CounterValue]:
    """Yield the values of the sensors."""
    for row in tables.get("power_samples", ()):
        if row["measured_power_w"] is not None:
            yield CounterValue(f"{row['sensor_domain']} W", row["time_us"], row["measured_power_w"])
    for row in tables.get("host_samples", ()):
        if row["value"] is not None:
            yield CounterValue(f"{row['sensor_domain']} {row['quantity']}", row["time_us"], row["value"])


def _run_slice(row: Row, shown: Mapping[int, Shown], slow: Mapping[tuple[bool, int], str]) -> Slice:
    series = "profiled" if row["is_profiled"] else "unprofiled"
    facts = {"run_index": row["run_index"], "is_warmup": row["is_warmup"]}
    if row["is_profiled"] and (run := shown.get(row["run_index"])):
        facts |= {"role": run.role, "outside_nodes_us": row["latency_us"] - covered_us(run.spans)}
    if cause := slow.get((row["is_profiled"], row["run_index"])):
        facts["slow_because"] = cause
    name = f"run {row['run_index']}" + (" (slow)" if cause else "")
    return Slice(name, series, row["start_us"], row["latency_us"], facts)


def covered_us(spans: Iterable[NodeSpan]) -> float:
    """Return the time in which at least one node ran; nodes of a body lie within their owner."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start_us):
        total += max(0.0, span.end_us - max(span.start_us, reached))
        reached = max(reached, span.end_us)
    return total


def _node_slice(span: NodeSpan, run: Shown, nodes: Mapping[str, Row]) -> Slice:
    node = nodes.get(span.executed_node, {})
    facts = {key: node[key] for key in NODE_FACTS if node.get(key) is not None}
    track, duration_us = node.get("provider", "nodes"), span.end_us - span.start_us
    return Slice(span.executed_node, track, span.start_us, duration_us, {"run_index": run.run_index, **facts})


def _event_slice(row: Row) -> Slice:
    by = f" by {row['other_process']}" if row["other_process"] else ""
    thread = "main thread" if row["is_main_thread"] else f"thread {row['thread_id']}"
    facts = {key: row[key] for key in ("event_source", "processor_index", "event_count") if row[key] is not None}
    return Slice(f"{row['event_kind']}{by}", thread, row["time_us"], row["duration_us"] or 0.0, facts)


def _during(disturbances: Iterable[Row], runs: Sequence[Row]) -> Iterator[Row]:
    """Yield the disturbances that lie at least partly in a run. Runs follow one another."""
    ordered = sorted((row["start_us"], row["start_us"] + row["latency_us"]) for row in runs)
    for row in disturbances:
        index = bisect_left(ordered, (row["time_us"] + (row["duration_us"] or 0.0),)) - 1
        if index >= 0 and row["time_us"] < ordered[index][1]:
            yield row


def _chain(shown: Sequence[Shown], slices: Mapping[int, Sequence[Slice]], critical: Sequence[str]) -> list[Slice]:
    """Return the slices of the critical path in the run that is shown as the median, each node once."""
    run = next((run for run in shown if "median" in run.role), None)
    if run is None:
        return []
    first: dict[str, Slice] = {}
    for part in slices[run.run_index]:
        first.setdefault(part.name, part)
    return [first[name] for name in critical if name in first]


def shown_rows(made: Timeline) -> list[dict[str, Any]]:
    """Return the runs whose nodes a timeline shows, with the number of their node events."""
    counts = Counter(part.facts["run_index"] for part in made.nodes)
    return [
        {**run.facts, "name": run.name, "latency_us": run.duration_us, "event_count": counts[run.facts["run_index"]]}
        for run in made.runs
        if "role" in run.facts
    ]


def counts_of(made: Timeline) -> dict[str, int]:
    """Return how many of what a timeline holds."""
    return {
        "runs": len(made.runs),
        "disturbances": len(made.disturbances),
        "samples": len(made.samples),
        "arrows along the critical path": max(len(made.chain) - 1, 0),
    }
