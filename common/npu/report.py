"""The report of a profile: its summary as a document, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.npu.chips import Chip, chip_node_rows, chip_rows
from common.npu.earlier_summary import since_baseline
from common.npu.nodes import node_row
from common.npu.qnn_profile import run_rows
from common.npu.sources import Sources, read_sources
from common.npu.summary_figures import SECTIONS, as_document, median_run, sections

if TYPE_CHECKING:
    from common.table_rows import Tables

NO_RESULTS = "the files hold no results that could be compared with the CPU's"


@dataclass(frozen=True, slots=True)
class Session:
    """What a session left.

    Attributes:
        files: ``qnn_csv``, and ``schematic``, ``qhas``, ``op_trace`` where there are any.
        errors: of each result, how far it is from the CPU's, as a dataclass with ``max_error``.
        soc_model: the chip; None where only the files may tell.
    """

    files: Mapping[str, Path | None]
    errors: Sequence[Any] = ()
    soc_model: int | None = None
    no_errors: str = NO_RESULTS


@dataclass(frozen=True, slots=True)
class NpuReport:
    document: dict[str, Any]
    tables: Tables


def report_of(
    sessions: Sequence[Session],
    graph_index: int | None,
    facts: Mapping[str, Any],
    baseline: Mapping[str, Any] | None = None,
) -> NpuReport:
    """Return the report of the first session, and a comparison of all where there are several."""
    read = [(session, read_sources(session.files, graph_index)) for session in sessions]
    first, sources = read[0]
    nodes, is_emulated = sources.nodes(), sources.profile.is_emulated
    accelerator_us = median_run(sources.profile).accelerator_us
    document = as_document(
        sections(sources, nodes),
        **facts,
        **sources.facts(),
        precision=[asdict(error) for error in first.errors],
        precision_unavailable="" if first.errors else first.no_errors,
    )
    document["since_baseline"] = since_baseline(baseline, document) if baseline else None
    tables: Tables = {
        "npu_nodes": [node_row(node, accelerator_us, is_emulated=is_emulated) for node in nodes],
        "npu_runs": run_rows(sources.profile),
    }
    if len(read) > 1:
        chips = [_chip(session, of_chip) for session, of_chip in read]
        tables["npu_chips"], tables["npu_chip_nodes"] = chip_rows(chips), chip_node_rows(chips)
    return NpuReport(document, tables)


def _chip(session: Session, sources: Sources) -> Chip:
    nodes = sources.nodes()
    figures = {name: figure.value for name, figure in sections(sources, nodes)[SECTIONS[1]].items()}
    figures["vtcm_peak_bytes"] = sources.schematic.vtcm_peak_bytes if sources.schematic else None
    known = [error.max_error for error in session.errors]
    is_known = known and None not in known
    return Chip(session.soc_model or 0, nodes, figures, max(known) if is_known else None)
