"""The profile of an NPU as text and as a page: figures with their sources, why others are unavailable, chips, nodes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from common.messages.names import printable, shorten
from common.table_rows import NpuChipsRow, NpuNodesRow, NpuOperatorsRow, Tables
from common.view.html import bullet_list, page, section
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import MISSING, WIDTH, percent, quantity, significant

MOST_NODES = 15
KINDS_WIDTH = 14
ERROR_COLUMNS = ("max_error", "max_magnitude")
SECTIONS = ("execution_summary", "resource_utilization")


def count_text(value: float | None) -> str:
    """Write a figure: a whole number in full, another one with four digits."""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value == int(value) else significant(value, 4)


CHANGES: Table[Mapping[str, Any]] = Table(
    TableColumn("figure", lambda change: change["figure"]),
    TableColumn("baseline", lambda change: count_text(change["before"])),
    TableColumn("now", lambda change: count_text(change["now"])),
    TableColumn("change", lambda row: MISSING if (share := row["change_share"]) is None else f"{100 * share:+.1f} %"),
)
CHIPS: Table[NpuChipsRow] = Table(
    TableColumn("SoC", lambda chip: count_text(chip["soc_model"])),
    TableColumn("nodes", lambda chip: count_text(chip["npu_node_count"])),
    TableColumn("fused", lambda chip: count_text(chip["fused_node_count"])),
    TableColumn("moved", lambda chip: count_text(chip["moved_node_count"])),
    TableColumn("HTP", lambda chip: count_text(chip["htp_op_count"])),
    TableColumn("HVX", lambda chip: count_text(chip["hvx_op_count"])),
    TableColumn("HMX", lambda chip: count_text(chip["hmx_op_count"])),
    TableColumn("DRAM read", lambda chip: count_text(chip["dram_read_bytes"])),
    TableColumn("written", lambda chip: count_text(chip["dram_write_bytes"])),
    TableColumn("spilled", lambda chip: count_text(chip["spill_bytes"])),
    TableColumn("VTCM", lambda chip: count_text(chip["vtcm_peak_bytes"])),
)
OPERATORS: Table[NpuOperatorsRow] = Table(
    TableColumn("QNN operator type", lambda row: row["npu_operator"]),
    TableColumn("cycles", lambda row: count_text(row["npu_cycles"])),
    TableColumn("share", lambda row: percent(row["npu_cycles_share"])),
    TableColumn("dominant path", lambda row: count_text(row["dominant_path_cycles"])),
    TableColumn("DRAM read", lambda row: count_text(row["dram_read_bytes"])),
    TableColumn("VTCM read", lambda row: count_text(row["vtcm_read_bytes"])),
)
PRECISION = table_of_cells("result", "largest error", "largest value on the CPU")
NODE_COLUMNS = (
    *("npu_node", "qnn_op_type", "source_nodes", "fused_into", "htp_op_count", "hvx_op_count", "hmx_op_count"),
    *("dma_op_count", "dram_read_bytes", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes", "spill_bytes"),
)
CYCLE_COLUMNS = ("npu_cycles", "npu_cycles_share", "attributed_npu_time_us")
FIGURES = table_of_cells("figure", "value", "source")
UNAVAILABLE = table_of_cells("figure", "why")


def npu_report(document: Mapping[str, Any], tables: Tables) -> str:
    """Return the figures of npu_summary, what changed since the baseline, the chips, and the nodes of npu_nodes.

    Nodes are in the order of their DRAM traffic, or without a schematic in that of the graph. The cycles of
    an emulator order nothing.
    """
    nodes = tables["npu_nodes"]
    parts = [heading(document, nodes), *(_figures(document, title) for title in SECTIONS), _precision(document)]
    if since := document["since_baseline"]:
        doubts = (textwrap.fill(printable(doubt), WIDTH) for doubt in since["doubts"])
        parts.append("\n".join([CHANGES.text(since["changes"]), *doubts]))
    parts += [CHIPS.text(chips)] if (chips := tables.get("npu_chips")) else []
    parts += [OPERATORS.text(by_type)] if (by_type := _by_type(tables.get("npu_operators", ()))) else []
    return "\n\n".join(filter(None, [*parts, _reasons(document), _nodes(nodes) if nodes else ""]))


def _by_type(operators: Sequence[NpuOperatorsRow]) -> list[NpuOperatorsRow]:
    return [row for row in operators if row["npu_operator_kind"] == "QNN operator type"]


def heading(document: Mapping[str, Any], nodes: Sequence[NpuNodesRow]) -> str:
    """Return what was profiled, and whether its times are valid."""
    where = "the HTP emulator" if document["is_emulated"] else "a device"
    chips = "".join(f", SoC model {model}" for model in document["soc_models"])
    is_known = all(row["hvx_op_count"] is not None for row in nodes)  # by the schematic
    fused = sum(bool(row["fused_into"]) for row in nodes) if is_known else "an unknown number"
    runs = "1 run" if document["run_count"] == 1 else f"{document['run_count']} runs"
    first = f"{len(nodes)} nodes, {fused} of them fused into others; {runs} on {where}{chips}"
    return f"{first}\nThe emulator's times mean nothing, so none is shown." if document["is_emulated"] else first


def _figures(document: Mapping[str, Any], title: str) -> str:
    known = {name: count_text(value) for name, value in document[title].items() if value is not None}
    if not known:
        return ""
    width, digits = max(map(len, known)), max(map(len, known.values()))
    sources = document["source"][title]
    lines = [title]
    for name, value in known.items():
        start = f"{name:<{width}}  {value:>{digits}}  "
        lines.append(textwrap.fill(sources[name], WIDTH, initial_indent=start, subsequent_indent=" " * len(start)))
    return "\n".join(lines)


def precision_rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of each result: its name, how far it is from the CPU's, and how large that is."""
    return [
        (row["output"], *("not comparable" if row[key] is None else f"{row[key]:.3g}" for key in ERROR_COLUMNS))
        for row in document["precision"]
    ]


def _precision(document: Mapping[str, Any]) -> str:
    """Return how far the results are from the CPU's, where both were computed."""
    if rows := precision_rows(document):
        return PRECISION.text(rows)
    return textwrap.fill(f"precision: unknown, because {document['precision_unavailable']}", WIDTH)


def _reasons(document: Mapping[str, Any]) -> str:
    by_reason: dict[str, list[str]] = {}
    for title in SECTIONS:
        for name, reason in document["unavailable"][title].items():
            by_reason.setdefault(reason, []).append(name)
    paragraphs = [
        textwrap.fill(printable(f"{', '.join(names)}: {reason}"), WIDTH, initial_indent="  ", subsequent_indent="    ")
        for reason, names in by_reason.items()
    ]
    return "\n".join(["unavailable", *paragraphs]) if paragraphs else ""


def _nodes(nodes: Sequence[NpuNodesRow]) -> str:
    # Unknowns are all alike in this order.
    shown = sorted(nodes, key=lambda row: -(row["dram_read_bytes"] or 0) - (row["dram_write_bytes"] or 0))[:MOST_NODES]
    kinds = _computed_kinds(nodes)
    columns: Table[NpuNodesRow] = Table(
        TableColumn("node", lambda row: row["npu_node"]),
        TableColumn("computes", lambda row: kinds[row["npu_node"]], is_left=True),
        TableColumn("DRAM read", lambda row: quantity(row["dram_read_bytes"], "B")),
        TableColumn("written", lambda row: quantity(row["dram_write_bytes"], "B")),
        TableColumn("VTCM read", lambda row: quantity(row["vtcm_read_bytes"], "B")),
        TableColumn("HVX", lambda row: MISSING if row["hvx_op_count"] is None else str(row["hvx_op_count"])),
        TableColumn("HMX", lambda row: MISSING if row["hmx_op_count"] is None else str(row["hmx_op_count"])),
        TableColumn("cycles", lambda row: percent(row["npu_cycles_share"])),
    )
    more = f"\n{len(nodes) - len(shown)} more nodes in npu_nodes.csv" if len(nodes) > len(shown) else ""
    return columns.text(shown) + more


def _computed_kinds(nodes: Sequence[NpuNodesRow]) -> dict[str, str]:
    kinds: dict[str, list[str]] = {row["npu_node"]: [] for row in nodes}
    for row in nodes:
        for host in (*row["fused_into"], row["npu_node"]):
            kinds[host].append(row["qnn_op_type"] or "")
    return {name: shorten("+".join(filter(None, of_node)), KINDS_WIDTH) or MISSING for name, of_node in kinds.items()}


def npu_page(document: Mapping[str, Any], tables: Tables) -> str:
    nodes = tables["npu_nodes"]
    cycles = () if document["is_emulated"] else CYCLE_COLUMNS  # the emulator's cycles order nothing
    title = f"NPU profile of {document['model']}" if document["model"] else "NPU profile"
    figures = [
        [name, count_text(value), document["source"][title][name]]
        for title in SECTIONS
        for name, value in document[title].items()
        if value is not None
    ]
    unavailable = [[name, reason] for title in SECTIONS for name, reason in document["unavailable"][title].items()]
    level, since = document["profiling_level"], document["since_baseline"]
    if level and level["unavailable"]:
        unavailable.append(["profiling_level", level["unavailable"]])
    chip_nodes = (row for row in tables.get("npu_chip_nodes", ()) if row["is_moved"])
    moved = _columns("soc_model", *NODE_COLUMNS).html(chip_nodes)
    errors, no_errors = precision_rows(document), document["precision_unavailable"]
    sections = {
        "figures": ("Figures", FIGURES.html(figures)),
        "changes": (
            "Since the baseline",
            CHANGES.html(since["changes"]) + bullet_list(since["doubts"]) if since else "",
        ),
        "chips": ("Chips", CHIPS.html(tables.get("npu_chips", ()))),
        "operators": ("Operators in QHAS", OPERATORS.html(_by_type(tables.get("npu_operators", ())))),
        "moved": ("Nodes that a chip places otherwise than the first one", moved),
        "precision": ("Results against the CPU's", PRECISION.html(errors) if errors else f"<p>{escape(no_errors)}</p>"),
        "unavailable": ("Unavailable", UNAVAILABLE.html(unavailable)),
        "nodes": ("Nodes", _columns(*NODE_COLUMNS, *cycles).html(nodes)),
    }
    links = "".join(f'<a href="#{key}">{text}</a>' for key, (text, content) in sections.items() if content)
    origin = "the emulator" if document["is_emulated"] else "a device"
    lines = [
        *heading(document, nodes).split("\n"),
        f"Taken for a profile of {origin}: {document['is_emulated_source']}.",
    ]
    top = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(line)}</p>" for line in lines)]
    body = [*top, f"<nav>{links}</nav>", *(section(key, *content) for key, content in sections.items())]
    return page(title, body)


def _columns(*names: str) -> Table[Mapping[str, Any]]:
    return Table(*(TableColumn(name, partial(_cell, name)) for name in names))


def _cell(name: str, row: Mapping[str, Any]) -> str:
    match row[name]:
        case None | "" | []:
            return MISSING
        case float(share) if name == "npu_cycles_share":
            return percent(share)
        case list(names):
            return ", ".join(names)
        case str(text):
            return text
        case value:
            return count_text(value)
