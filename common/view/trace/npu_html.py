"""The profile of an NPU as a page: figures with their sources, what is unavailable and why, chips, changes, nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from common.view.html import bullet_list, page, section
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import MISSING, percent
from common.view.trace.npu_text import CHANGES, CHIPS, PRECISION, SECTIONS, count_text, heading, precision_rows

if TYPE_CHECKING:
    from common.table_rows import NpuChipNodesRow, NpuNodesRow, Tables

NODE_COLUMNS = (
    *("npu_node", "qnn_op_type", "source_nodes", "fused_into", "htp_op_count", "hvx_op_count", "hmx_op_count"),
    *("dma_op_count", "dram_read_bytes", "dram_write_bytes", "vtcm_read_bytes", "vtcm_write_bytes", "spill_bytes"),
)
CYCLE_COLUMNS = ("npu_cycles", "npu_cycles_share", "attributed_npu_time_us")
FIGURES = table_of_cells("figure", "value", "source")
UNAVAILABLE = table_of_cells("figure", "why")


def npu_page(document: Mapping[str, Any], tables: Tables) -> str:
    nodes = tables["npu_nodes"]
    title = f"NPU profile of {document['model']}" if document["model"] else "NPU profile"
    sections = {
        "figures": ("Figures", _figures(document)),
        "changes": ("Since the baseline", _changes(document["since_baseline"])),
        "chips": ("Chips", CHIPS.html(tables.get("npu_chips", ()))),
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
        [name, count_text(value), document["source"][title][name]]
        for title in SECTIONS
        for name, value in document[title].items()
        if value is not None
    ]
    return FIGURES.html(rows)


def _unavailable(document: Mapping[str, Any]) -> str:
    rows = [[name, reason] for title in SECTIONS for name, reason in document["unavailable"][title].items()]
    level = document["profiling_level"]
    if level and level["unavailable"]:
        rows.append(["profiling_level", level["unavailable"]])
    return UNAVAILABLE.html(rows)


def _changes(since: Mapping[str, Any] | None) -> str:
    return "" if since is None else CHANGES.html(since["changes"]) + bullet_list(since["doubts"])


def _moved(rows: Sequence[NpuChipNodesRow]) -> str:
    return _columns("soc_model", *NODE_COLUMNS).html(row for row in rows if row["is_moved"])


def _precision(document: Mapping[str, Any]) -> str:
    rows = precision_rows(document)
    return PRECISION.html(rows) if rows else f"<p>{escape(document['precision_unavailable'])}</p>"


def _nodes(nodes: Sequence[NpuNodesRow], *, is_emulated: bool) -> str:
    """Return all nodes; the emulator's cycles are left out, because they order nothing."""
    return _columns(*NODE_COLUMNS, *(() if is_emulated else CYCLE_COLUMNS)).html(nodes)


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
