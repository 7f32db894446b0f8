"""The closing summary in 80 columns: the answer, what would change it, why to doubt it, and the figures behind it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from common.graphs.sums import ratio
from common.table_rows import Documents, HardwareCountersDocument, LatencySummaryDocument, OpRooflineRow
from common.view.design.design_text import verdict_lines
from common.view.executed_nodes import OperatorTypeTotals, TimedRow, by_op_type, leading_gap
from common.view.findings import Findings
from common.view.plan.answer.headline import headline
from common.view.plan.decode_text import decode_sentence
from common.view.plan.engine_text import engine_sentence
from common.view.plan.verdict_text import indented, offload_lines, outlook, outlook_title
from common.view.profile.generation_text import generation_sentence
from common.view.profile.latency_text import percentiles, profiling_text, steady_text
from common.view.report.warnings_text import MOST_IN_SUMMARY, by_effect, first_warnings, sorted_warnings
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, WIDTH, duration, joules, percent, quantity, significant, span

TOP = 3
INDENT = 13  # of the text beside a label
BULLET = "  - "
OPERATORS: Table[OperatorTypeTotals] = Table(
    TableColumn("operator", lambda group: f"{group.name} x{group.node_count}"),
    TableColumn("time", lambda group: duration(group.latency_us)),
    TableColumn("share", lambda group: percent(group.latency_share)),
    TableColumn("attained", lambda group: quantity(group.attained_flop_per_s, "FLOP/s")),
    TableColumn("of roof", lambda group: percent(group.roof_share, 0)),
    TableColumn("bound", lambda group: group.bound, is_left=True),
)


def closing_summary(findings: Findings, plain: Callable[[str], str] = str) -> str:
    """Return the summary, the answer first; sections without tables are left out, and the warnings name those tables.

    ``plain`` spells out the names in angle brackets; it sees our sentences, and no name of the model.
    """
    warnings = sorted_warnings(findings, plain)
    left_out = sum(map(len, warnings.values())) - MOST_IN_SUMMARY
    more = [f"  {left_out} more in report.html, by what they endanger"] if left_out > 0 else []
    answer, best = plain(answer_of(findings)), findings.documents.get("design_summary")
    design = verdict_lines(best).splitlines() if best else []
    sections = {
        outlook_title(findings.tables).upper(): bullets(map(plain, outlook(findings.tables))),
        "WARNINGS": [*doubt_lines(first_warnings(warnings), has_answer=bool(answer)), *more],
        "LATENCY": [
            *map(plain, latency_lines(findings.documents.get("latency_summary"))),
            *counter_lines(findings.documents.get("hardware_counters")),
        ],
        "WHAT MATTERS": [*group_lines(findings), *node_lines(findings)],
        "CHAIN": schedule_lines(findings),
        "ENERGY": list(map(plain, energy_lines(findings.documents))),
        "OFFLOAD": offload_lines(findings.tables),
        "DESIGN SPACE": [entry("" if number else "best", line)[0] for number, line in enumerate(design)],
    }
    parts = ["\n".join([*textwrap.wrap(answer, WIDTH, break_on_hyphens=False), heading(findings)])]
    parts += ["\n".join([title, *map(wrapped, lines)]) for title, lines in sections.items() if lines]
    return "\n\n".join(parts)


def answer_of(findings: Findings) -> str:
    """Return the answer in one sentence, of a decoder in tokens; nothing if there is no profile to plan for."""
    if decoder := findings.documents.get("decode_summary"):
        return decode_sentence(decoder)
    if "op_roofline" in findings.tables and not findings.tables.get("offload_verdict"):
        return "Not judged: there is no offload plan; run <offload_plan>"
    generated, engine = (findings.documents.get("generation_summary"), findings.documents.get("engine_summary"))
    of_it = generation_sentence(generated) if generated else engine_sentence(engine) if engine else ""
    return headline(findings.tables) or of_it


def doubt_lines(doubts: Mapping[str, Sequence[str]], *, has_answer: bool) -> list[str]:
    """Return the warnings; if there is an answer, they are grouped by their effect on it."""
    effects = by_effect(doubts)
    if not has_answer:
        return bullets(line for lines in effects.values() for line in lines)
    return [line for effect, lines in effects.items() for line in (f"  that {effect}", *bullets(lines))]


def bullets(lines: Iterable[str]) -> list[str]:
    return [f"{BULLET}{line}" for line in lines]


def wrapped(line: str) -> str:
    """Wrap a line at the width; continuation lines are indented to its text."""
    indent = " " * (len(BULLET) if line.startswith(BULLET) else INDENT)
    return "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)) or line


def heading(findings: Findings) -> str:
    """Return the model, the host, the threads and the execution provider."""
    origin = findings.origin()
    model = f"{origin.model} ({origin.model_id})" if origin.model_id else "no model"
    lines = [model, ", ".join(filter(None, origin[2:]))]
    return "\n".join(line for text in lines if text for line in textwrap.wrap(text, WIDTH))


def entry(label: str, text: str) -> list[str]:
    return [f"  {label:<{INDENT - 2}}{text}"]


def interval(value: float | None, low: float | None, high: float | None) -> str:
    """Return a duration with its interval: ``63.1 ms (62.8 ms to 63.5 ms)``."""
    return duration(value) + ("" if low is None or high is None else f" ({span(low, high, duration)})")


def latency_lines(summary: LatencySummaryDocument | None) -> list[str]:
    """Return percentiles with their intervals, the spread, the warm-up and the cost of profiling."""
    if summary is None:
        return []
    if not summary["sample_count"]:
        if summary["profiled_median_us"] is None:
            return entry("profiled", "times of layers of an imported profile, which has no times of runs")
        median = duration(summary["profiled_median_us"])
        return entry("profiled", f"median {median} of {summary['profiled_sample_count']} runs of an imported trace")
    shown = {name: interval(*limits) for name, limits in percentiles(summary).items() if limits[0] is not None}
    absent = [name for name, limits in percentiles(summary).items() if limits[0] is None]
    known = [f"{name} {text}" for name, text in shown.items() if name != "p50"]
    jitter = f"standard deviation {duration(summary['jitter_us'])}, " if summary["jitter_us"] is not None else ""
    confidence = "no interval" if summary["p50_low_us"] is None else "95 % confidence"
    lines = entry("median", f"{shown['p50']}, {confidence}, {summary['sample_count']} unprofiled runs")
    lines += entry("tails", ", ".join(known)) if known else []
    lines += entry("", f"too few runs for {', '.join(absent)}; raise <runs>") if absent else []
    lines += entry("spread", f"{jitter}{duration(summary['min_us'])} to {duration(summary['max_us'])}")
    start = summary["steady_start_index"]
    state = "no steady state" if start is None else f"steady: {steady_text(summary)}"
    lines += entry("warm-up", f"{state}; the first {summary['warmup_count']} runs are left out")
    creation, first = duration(summary["session_creation_us"]), duration(summary["first_run_us"])
    lines += entry("cold start", f"session {creation}, first run {first}")
    return lines + entry("profiling", profiling_text(summary))


def counter_lines(counters: HardwareCountersDocument | None) -> list[str]:
    """Return what the processor's counters measured during the runs."""
    if counters is None:
        return []
    ipc, missed = counters["instructions_per_cycle"], counters["cache_miss_share"]
    parts = [] if ipc is None else [f"{ipc:.2f} instructions per cycle"]
    parts += [] if missed is None else [f"{percent(missed)} cache misses"]
    return entry("processor", ", ".join(parts)) if parts else []


def group_lines(findings: Findings) -> list[str]:
    """Return the operator types that take most of the latency, with their share of the roof; a gap may come first."""
    if "op_roofline" not in findings.tables:
        return []
    roofline, gap = findings.tables["op_roofline"], _gap(findings)
    is_first = gap is not None and leading_gap(roofline) is not None
    first = [["gap between nodes", duration(gap[0]), percent(gap[1]), MISSING, MISSING, ""]] if gap and is_first else []
    return indented(OPERATORS.text(by_op_type(roofline)[:TOP], first=first, width=78))


def node_lines(findings: Findings) -> list[str]:
    """Return the slowest nodes, numbered as in the pictures."""
    names = {key.name: f"{key.number} {key.label}" for key in findings.key_nodes()[:TOP]}
    by_name = {row["executed_node"]: row for row in findings.tables.get("op_roofline", ())}
    if not by_name or not names:
        return []
    columns: Table[OpRooflineRow] = Table(
        TableColumn("slowest node", lambda row: names[row["executed_node"]]),
        TableColumn("time", lambda row: duration(row["node_latency_us"])),
        TableColumn("share", lambda row: percent(row["latency_share"])),
        TableColumn("attained", lambda row: quantity(row["attained_flop_per_s"], "FLOP/s")),
        TableColumn("of roof", lambda row: percent(row["roof_share"], 0)),
        TableColumn("bound", lambda row: row["bound"], is_left=True),
    )
    return indented(columns.text((by_name[name] for name in names), width=78))


def schedule_lines(findings: Findings) -> list[str]:
    """Return span, work, and the makespan of the sequential executor."""
    schedule = findings.tables.get("op_schedule")
    if not schedule:
        return []
    work_us = sum(row["node_latency_us"] for row in schedule)
    span_us = max(row["earliest_finish_us"] for row in schedule)
    chain = sum(row["is_critical"] for row in schedule)
    parallelism = significant(work_us / span_us) if span_us else MISSING
    lines = entry("span", f"{duration(span_us)}: the longest chain, {chain} of {len(schedule)} nodes")
    lines += entry("work", f"{duration(work_us)}: all nodes; parallelism = work / span = {parallelism}")
    text = "ONNX Runtime's default executor runs one node after another: makespan = work + gap"
    if (gap := _gap(findings)) is not None:
        gap_us, gap_share = gap
        text += f" = {duration(work_us + gap_us)}; the gap between nodes is {percent(gap_share)} of it"
    return lines + entry("as run", text)


def _gap(findings: Findings) -> tuple[float, float] | None:
    """Return the time between nodes in µs, and its share of the latency."""
    nodes: Iterable[TimedRow] = chain(findings.tables.get("op_roofline", ()), findings.tables.get("ops_profile", ()))
    return next(((row["node_latency_us"], row["latency_share"]) for row in nodes if row["row_kind"] == "gap"), None)


def energy_lines(documents: Documents) -> list[str]:
    """Return the energy with its source, its split by cause, and the efficiency."""
    summary, efficiency = documents.get("energy_summary"), documents.get("efficiency")
    if summary is None or summary["energy_uj"] is None:
        return [] if summary is None else entry("energy", "unavailable; give <avg_power_w>")
    limits = [joules(summary["energy_low_uj"]), joules(summary["energy_high_uj"])]
    span = "no interval" if MISSING in limits else " to ".join(limits)
    lines = entry("energy", f"{joules(summary['energy_uj'])} per inference ({summary['energy_source']}), {span}")
    parts_uj = summary["compute_energy_uj"], summary["movement_energy_uj"], summary["static_energy_uj"]
    by_cause = zip(("compute", "data movement", "static"), parts_uj, strict=True)
    shares = {name: ratio(part_uj, summary["energy_uj"]) for name, part_uj in by_cause}
    split = ", ".join(f"{name} {percent(share, 0)}" for name, share in shares.items() if share is not None)
    lines += entry("split", f"{split} (modelled)") if split else []
    if efficiency:
        per_joule, attained = efficiency["inferences_per_joule"], efficiency["efficiency_flop_per_s_per_w"]
        figures = [] if per_joule is None else [f"{significant(per_joule)} inferences per joule"]
        figures += [] if attained is None else [quantity(attained, "FLOP/s/W")]
        lines += entry("efficiency", ", ".join(figures)) if figures else []
    return lines
