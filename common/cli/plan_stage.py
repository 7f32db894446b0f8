"""The common part of the scripts that plan: the graph, the tables of the host that a plan is for, a board's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.folder import Folder, is_there
from common.cli.flags.settings import ROOT
from common.graphs.source_graph import SourceGraph, from_rows
from common.messages.errors import CommandLineError
from common.messages.names import shown
from common.table_rows import DesignEnginesRow, Documents, OpMetricsRow, PrecisionMixturesRow, Tables

CONFIGS = ROOT / "configs"
TABLES = ("op_metrics", "op_edges", "node_map", "op_latency", "ops_profile", "op_schedule")
DOCUMENTS = ("latency_summary", "energy_summary")
Work = TypeVar("Work")


def source_graph(folder: Folder) -> tuple[list[OpMetricsRow], SourceGraph]:
    """Return the counted nodes of the model, and their graph."""
    metrics, edges = folder.rows("op_metrics"), folder.rows("op_edges")
    with folder.content():
        return metrics, from_rows(metrics, edges)


def require_host_tables(folder: Path) -> None:
    """Refuse a folder that lacks a table of the board's own processor, before anything is measured for the plan."""
    files = [folder / ARTIFACTS[name].file for name in (*TABLES, *DOCUMENTS)]
    if missing := next((file for file in files if not is_there(file)), None):
        raise CommandLineError("<host_tables>", f"{shown(missing)}: not found", "run 01 to 05 on the board itself")


def rows_of_designs(folder: Folder) -> list[DesignEnginesRow]:
    """Return the arrays that 29 found for a board. 07 can plan without them, so the table need not exist."""
    return folder.rows("design_engines")


def mixtures(folder: Folder) -> list[PrecisionMixturesRow]:
    """Return the mixtures of layers that 28 judged, which a plan needs only if it is to have two number formats."""
    return folder.rows("precision_mixtures")


def work_of_host(folder: Folder, build: Callable[[Tables, Documents, Sequence[str]], Work]) -> tuple[Work, str]:
    """Return the work of a host, built of its tables and the notes on them, and the name of its processor."""
    rows, documents = folder.tables(TABLES), folder.documents(DOCUMENTS)
    profile = folder.provenance("latency_summary")
    with folder.content():
        return build(rows, documents, profile.notes), profile.host.get("cpu_model", "")
