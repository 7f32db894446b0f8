"""The timeline of a measurement, from the rows of its tables."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from common.latency.run import NodeSpan
from common.table_rows import OsEventsRow, RunLatencyRow, Tables
from common.timeline.chrome_trace import ChromeTrace, CounterValue, Process, Slice, known_facts
from common.timeline.shown_runs import (
    MOST_DISTURBANCES,
    MOST_FACTS,
    MOST_RUNS,
    MOST_SAMPLES,
    ShownRun,
    event_count,
    left_out_notes,
    limited,
    limited_node_events,
)

# What a node's slice says of it, by the column that says it.
NODE_FACTS = (
    *("executed_node", "op_type", "source_nodes", "node_latency_us", "latency_share", "macs", "flops", "bytes"),
    *("bound", "roof_share", "is_above_roof", "energy_uj", "energy_source"),
)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The contents of a measurement's timeline.

    Attributes:
        nodes: executed nodes of some runs, by provider, and by thread where there are several.
        chain: slices of ``nodes`` on the critical path, in their order.
    """

    runs: Sequence[Slice]
    nodes: Sequence[Slice]
    disturbances: Sequence[Slice]
    samples: Sequence[CounterValue]
    chain: Sequence[Slice]
    gaps: Sequence[Slice] = ()
    notes: Sequence[str] = ()

    def trace(self, *others: Process) -> ChromeTrace:
        host = Process("host", self.disturbances, self.samples)
        nodes, gaps = Process("executed nodes", self.nodes), Process("outside the nodes", self.gaps)
        return ChromeTrace((Process("runs", self.runs), nodes, gaps, *others, host), self.chain, "critical path")


def timeline(
    tables: Tables, shown: Sequence[ShownRun], labels: Mapping[str, str] | None = None, *, is_bounded: bool = True
) -> Timeline:
    """Return the timeline of a measurement.

    Without run_latency there are no runs. ``labels`` are distinct names for executed nodes; one without keeps its own.
    With ``is_bounded``, what would make the timeline too large is left out, see :mod:`common.timeline.shown_runs`.
    """
    rows = tables.get("run_latency", ())
    kept = limited_node_events(shown) if is_bounded else shown
    by_index = {run.run_index: run for run in kept}
    of_shown = [row for row in rows if row["is_profiled"] and row["run_index"] in by_index]
    runs = of_shown if is_bounded and len(rows) > MOST_RUNS else rows
    disturbed = tables.get("run_disturbances", ())
    causes = {(row["is_profiled"], row["run_index"]): row["disturbance_cause"] or "unknown" for row in disturbed}
    labels = labels or {}
    critical = (row["executed_node"] for row in tables.get("critical_path", ()))
    slices = _node_slices(kept, _nodes(tables), labels)
    whole = Timeline(
        runs=[_run_slice(row, by_index, causes) for row in runs],
        nodes=[part for parts in slices.values() for part in parts],
        disturbances=[_event_slice(row) for row in _during(tables.get("os_events", ()), rows)],
        samples=[*_samples(tables)],
        chain=_chain(kept, slices, [labels.get(name, name) for name in critical]),
        gaps=[*_gaps(of_shown, by_index)],
    )
    return _bounded(whole, of_shown, {"runs": len(rows), "node events": event_count(shown)}) if is_bounded else whole


def _bounded(whole: Timeline, shown: Sequence[RunLatencyRow], counts: Mapping[str, int]) -> Timeline:
    """Return the timeline with as many disturbances and samples as a viewer loads, and notes on what it lacks.

    ``counts`` are the numbers of runs and node events in the tables.
    """
    intervals = [(row["start_us"], row["start_us"] + row["latency_us"]) for row in shown]
    disturbances = limited(whole.disturbances, lambda part: part.start_us, intervals, MOST_DISTURBANCES)
    samples = limited(whole.samples, lambda sample: sample.time_us, intervals, MOST_SAMPLES)
    kept = replace(whole, disturbances=disturbances, samples=samples)
    all_counts = {**counts_of(whole), "node events": len(whole.nodes)}
    return replace(
        kept, notes=left_out_notes({**all_counts, **counts}, {**counts_of(kept), "node events": len(kept.nodes)})
    )


def _node_slices(
    shown: Sequence[ShownRun], nodes: Mapping[str, Mapping[str, object]], labels: Mapping[str, str]
) -> dict[int, list[Slice]]:
    """Return the nodes of each shown run, by run index; ``nodes`` and ``labels`` say what is known of them by name.

    Where there are very many events, what is known of a node is given at its first one alone.
    """
    names_thread = len({span.thread_id for run in shown for span in run.spans}) > 1
    is_few = event_count(shown) <= MOST_FACTS
    described: set[str] = set()
    slices: dict[int, list[Slice]] = {}
    for run in shown:
        slices[run.run_index] = parts = []
        for span in run.spans:
            node = nodes.get(span.executed_node, {})
            facts = known_facts(node, NODE_FACTS) if is_few or span.executed_node not in described else {}
            described.add(span.executed_node)
            track = str(node.get("provider", "nodes")) + (f", thread {span.thread_id}" if names_thread else "")
            facts = {"run_index": run.run_index, **facts}
            label = labels.get(span.executed_node, span.executed_node)
            parts.append(Slice(label, track, span.start_us, span.end_us - span.start_us, facts))
    return slices


def _gaps(rows: Iterable[RunLatencyRow], shown: Mapping[int, ShownRun]) -> Iterator[Slice]:
    for row in rows:
        for start_us, end_us in _uncovered(row, shown[row["run_index"]]):
            yield Slice("between nodes", "gap", start_us, end_us - start_us, {"run_index": row["run_index"]})


def _uncovered(row: RunLatencyRow, run: ShownRun) -> Iterator[tuple[float, float]]:
    return uncovered(run.spans, row["start_us"], row["start_us"] + row["latency_us"])


def _nodes(tables: Tables) -> dict[str, dict[str, object]]:
    nodes: dict[str, dict[str, object]] = {}
    for row in (*tables.get("op_latency", ()), *tables.get("op_roofline", ()), *tables.get("ops_profile", ())):
        nodes.setdefault(row["executed_node"], {}).update(row)
    return nodes


def _samples(tables: Tables) -> Iterator[CounterValue]:
    for row in tables.get("power_samples", ()):
        if row["measured_power_w"] is not None:
            yield CounterValue(f"{row['sensor_domain']} W", row["time_us"], row["measured_power_w"])
    for sample in tables.get("host_samples", ()):
        if sample["value"] is not None:
            yield CounterValue(f"{sample['sensor_domain']} {sample['quantity']}", sample["time_us"], sample["value"])


def _run_slice(row: RunLatencyRow, shown: Mapping[int, ShownRun], causes: Mapping[tuple[bool, int], str]) -> Slice:
    series = "profiled" if row["is_profiled"] else "unprofiled"
    facts: dict[str, object] = {"run_index": row["run_index"], "is_warmup": row["is_warmup"]}
    if row["is_profiled"] and (run := shown.get(row["run_index"])):
        outside_us = sum(end_us - start_us for start_us, end_us in _uncovered(row, run))
        facts |= {"role": run.role, "outside_nodes_us": outside_us}
    if cause := causes.get((row["is_profiled"], row["run_index"])):
        facts["slow_because"] = cause
    name = f"run {row['run_index']}" + (" (slow)" if cause else "")
    return Slice(name, series, row["start_us"], row["latency_us"], facts)


def uncovered(spans: Iterable[NodeSpan], start_us: float, end_us: float) -> Iterator[tuple[float, float]]:
    """Yield the parts of an interval in which no node ran; nodes of a body run within their owner."""
    reached_us = start_us
    for span in sorted(spans, key=lambda span: span.start_us):
        if span.start_us > reached_us:
            yield reached_us, min(span.start_us, end_us)
        reached_us = max(reached_us, span.end_us)
    if end_us > reached_us:
        yield reached_us, end_us


def _event_slice(row: OsEventsRow) -> Slice:
    by = f" by {row['other_process']}" if row["other_process"] else ""
    thread = "main thread" if row["is_main_thread"] else f"thread {row['thread_id']}"
    facts = known_facts(row, ("event_source", "processor_index", "event_count"))
    return Slice(f"{row['event_kind']}{by}", thread, row["time_us"], row["duration_us"] or 0.0, facts)


def _during(disturbances: Iterable[OsEventsRow], runs: Sequence[RunLatencyRow]) -> Iterator[OsEventsRow]:
    """Yield the disturbances that are at least partly in a run. Runs follow one another."""
    ordered = sorted((row["start_us"], row["start_us"] + row["latency_us"]) for row in runs)
    for row in disturbances:
        index = bisect_left(ordered, (row["time_us"] + (row["duration_us"] or 0.0),)) - 1
        if index >= 0 and row["time_us"] < ordered[index][1]:
            yield row


def _chain(shown: Sequence[ShownRun], slices: Mapping[int, Sequence[Slice]], critical: Sequence[str]) -> list[Slice]:
    """Return the slices of the critical path in the run that is shown as the median, each node once.

    The owner of a body begins before the nodes of the body, which the path has first; no arrow leads back to it.
    """
    run = next((run for run in shown if "median" in run.role), None)
    if run is None:
        return []
    first: dict[str, Slice] = {}
    for part in slices[run.run_index]:
        first.setdefault(part.name, part)
    chain: list[Slice] = []
    for part in (first[name] for name in critical if name in first):
        if not chain or part.start_us >= chain[-1].start_us:
            chain.append(part)
    return chain


def shown_rows(made: Timeline) -> list[dict[str, object]]:
    """Return the runs whose nodes a timeline shows, with the number of their node events."""
    counts = Counter(part.facts["run_index"] for part in made.nodes)
    return [
        {**run.facts, "name": run.name, "latency_us": run.duration_us, "event_count": counts[run.facts["run_index"]]}
        for run in made.runs
        if "role" in run.facts
    ]


def counts_of(made: Timeline) -> dict[str, int]:
    return {
        "runs": len(made.runs),
        "disturbances": len(made.disturbances),
        "samples": len(made.samples),
        "arrows along the critical path": max(len(made.chain) - 1, 0),
    }
