"""The profile of an NPU as a page: figures with their sources, what is unavailable and why, chips, changes, nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from common.names import printable
from common.view.html import bullet_list, html_table, page, section
from common.view.text import MISSING, percent
from common.view.trace.npu_text import (
    CHANGE_COLUMNS,
    CHIP_COLUMNS,
    SECTIONS,
    change_rows,
    chip_rows,
    heading,
    precision_rows,
    value_text,
)

if TYPE_CHECKING:
    from common.table_rows import Tables

NODE_COLUMNS = (
    *("npu_node", "qnn_op_type", "source_nodes", "fused_into", "htp_op_count", "hvx_op_count", "hmx_op_count"),
    *("dma_op_count", "dram_read_bytes", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes", "spill_bytes"),
)
Row = Mapping[str, Any]


def npu_page(document: Mapping[str, Any], tables: Tables) -> str:
    """Return the page of an npu_summary and its tables."""
    nodes = tables["npu_nodes"]
    title = f"NPU profile of {document['model']}" if document["model"] else "NPU profile"
    sections = {
        "figures": ("Figures", _figures(document)),
        "changes": ("Since the baseline", _changes(document["since_baseline"])),
        "chips": ("Chips", _chips(tables.get("npu_chips", ()))),
        "moved": ("Nodes that a chip places otherwise than the first one", _moved(tables.get("npu_chip_nodes", ()))),
        "precision": ("Results against the CPU's", _precision(document)),
        "unavailable": ("Unavailable", _unavailable(document)),
        "nodes": ("Nodes", _nodes(nodes, is_emulated=document["is_emulated"])),
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


def _figures(document: Mapping[str, Any]) -> str:
    rows = [
        [name, value_text(value), document["source"][title][name]]
        for title in SECTIONS
        for name, value in document[title].items()
        if value is not None
    ]
    return html_table(("figure", "value", "source"), rows)


def _unavailable(document: Mapping[str, Any]) -> str:
    rows = [[name, reason] for title in SECTIONS for name, reason in document["unavailable"][title].items()]
    level = document["profiling_level"]
    if level and level["unavailable"]:
        rows.append(["profiling_level", level["unavailable"]])
    return html_table(("figure", "why"), rows)


def _changes(since: Row | None) -> str:
    if since is None:
        return ""
    return html_table(CHANGE_COLUMNS, change_rows(since)) + bullet_list(since["doubts"])


def _chips(chips: Sequence[Row]) -> str:
    return html_table([label for label, _ in CHIP_COLUMNS], chip_rows(chips))


def _moved(rows: Sequence[Row]) -> str:
    moved = [row for row in rows if row["is_moved"]]
    columns = ("soc_model", *NODE_COLUMNS)
    return html_table(columns, ([_cell(row[column]) for column in columns] for row in moved))


def _precision(document: Mapping[str, Any]) -> str:
    rows = precision_rows(document)
    header = ("result", "largest error", "largest value on the CPU")
    return html_table(header, rows) if rows else f"<p>{escape(document['precision_unavailable'])}</p>"


def _nodes(nodes: Sequence[Row], *, is_emulated: bool) -> str:
    """Return all nodes; the emulator's cycles are left out, because they order nothing."""
    columns = (
        NODE_COLUMNS if is_emulated else (*NODE_COLUMNS, "npu_cycles", "npu_cycles_share", "attributed_npu_time_us")
    )
    return html_table(columns, ([_cell(row[column], column) for column in columns] for row in nodes))


def _cell(value: Any, column: str = "") -> str:
    if value is None or value == "":
        return MISSING
    if column == "npu_cycles_share":
        return percent(value)
    if isinstance(value, list):
        return printable(", ".join(value)) or MISSING
    return printable(value) if isinstance(value, str) else value_text(value)
