"""The timeline of a measurement, from the rows of its tables, and what it leaves out to stay below 20 MB."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import TypeVar

from common.latency.run import NodeSpan
from common.messages.errors import PipelineError
from common.table_rows import OsEventsRow, RunLatencyRow, Tables
from common.timeline.chrome_trace import ChromeTrace, CounterValue, Process, Slice, known_facts

# What a node's slice says of it, by the column that says it.
NODE_FACTS = (
    *("executed_node", "op_type", "source_nodes", "node_latency_us", "latency_share", "macs", "flops", "bytes"),
    *("bound", "roof_share", "is_above_roof", "energy_uj", "energy_source"),
)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The contents of a measurement's timeline; ``chain`` are the slices of ``nodes`` on the critical path, in order.

    The nodes are those of some runs, by provider, and by thread where there are several.
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
    With ``is_bounded``, what would make the timeline too large is left out.
    """
    rows = tables.get("run_latency", ())
    kept = limited_node_events(shown) if is_bounded else shown
    by_index = {run.run_index: run for run in kept}
    of_shown = [row for row in rows if row["is_profiled"] and row["run_index"] in by_index]
    runs = of_shown if is_bounded and len(rows) > MOST_RUNS else rows
    disturbed = tables.get("run_disturbances", ())
    causes = {(row["is_profiled"], row["run_index"]): row["disturbance_cause"] or "unknown" for row in disturbed}
    critical = (row["executed_node"] for row in tables.get("critical_path", ()))
    labels = labels or {}
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
    """Return the timeline with as many disturbances and samples as a viewer loads, and notes on the rest."""
    intervals = [*map(_ends_us, shown)]
    disturbances = limited(whole.disturbances, lambda part: part.start_us, intervals, MOST_DISTURBANCES)
    samples = limited(whole.samples, lambda sample: sample.time_us, intervals, MOST_SAMPLES)
    kept = replace(whole, disturbances=disturbances, samples=samples)
    kept_counts = {**counts_of(kept), "node events": len(kept.nodes)}
    return replace(kept, notes=left_out_notes({**counts_of(whole), **counts}, kept_counts))


def _ends_us(row: RunLatencyRow) -> tuple[float, float]:
    return row["start_us"], row["start_us"] + row["latency_us"]


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
        for start_us, end_us in uncovered(shown[row["run_index"]].spans, *_ends_us(row)):
            yield Slice("between nodes", "gap", start_us, end_us - start_us, {"run_index": row["run_index"]})


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
        outside_us = sum(end_us - start_us for start_us, end_us in uncovered(run.spans, *_ends_us(row)))
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
    ordered = sorted(map(_ends_us, runs))
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
