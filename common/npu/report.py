"""The report of a profile: its summary as a document, what changed since an earlier one, its tables, several chips.

The compiler decides bytes, operators and placement for a chip. So these are as valid on the emulator as on a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from common.messages.errors import PipelineError
from common.npu.nodes import NpuNode, Sources, node_row, placement_cells, read_sources
from common.npu.qnn_profile import run_rows
from common.npu.source_file import optional_number, read_json
from common.npu.summary_figures import SECTIONS, as_document, median_run, sections
from common.table_rows import NpuChipNodesRow, NpuChipsRow, Tables

NO_RESULTS = "the files hold no results that could be compared with the CPU's"
BASELINE = "a folder that holds an npu_summary.json"
MOST_BYTES = 10_000_000
SAME = ("model", "is_emulated", "soc_models")  # where these differ, a change may have another cause
UNKNOWN: tuple[object, ...] = (None, [])


class ResultError(TypedDict):
    """How far a result is from the CPU's, and how large the CPU's is; None where that is no number."""

    output: str
    max_error: float | None
    max_magnitude: float | None


@dataclass(frozen=True, slots=True)
class Session:
    """The record of a session on an NPU; ``soc_model`` is its chip, or None where only the files may say.

    ``files`` are ``qnn_csv``, and ``schematic``, ``qhas``, ``op_trace`` where there are any.
    """

    files: Mapping[str, Path | None]
    errors: Sequence[ResultError] = ()
    soc_model: int | None = None
    no_errors: str = NO_RESULTS


@dataclass(frozen=True, slots=True)
class NpuReport:
    document: dict[str, object]
    tables: Tables


def report_of(
    sessions: Sequence[Session],
    graph_index: int | None,
    facts: Mapping[str, object],
    baseline: Mapping[str, object] | None = None,
    *,
    is_partial: bool = False,
) -> NpuReport:
    """Return the report of the first session, and a comparison of all where there are several."""
    read = [(session, read_sources(session.files, graph_index, is_partial=is_partial)) for session in sessions]
    first, sources = read[0]
    nodes, is_emulated = sources.nodes(), sources.profile.is_emulated
    accelerator_us = median_run(sources.profile).accelerator_us
    document = as_document(
        sections(sources, nodes),
        **facts,
        is_emulated=is_emulated,
        is_emulated_source=sources.profile.evidence,
        run_count=len(sources.profile.runs),
        soc_models=[*sources.trace.soc_models] if sources.trace else [],
        precision=[*first.errors],
        precision_unavailable="" if first.errors else first.no_errors,
    )
    document["since_baseline"] = since_baseline(baseline, document) if baseline else None
    tables: Tables = {
        "npu_nodes": [node_row(node, accelerator_us, is_emulated=is_emulated) for node in nodes],
        "npu_runs": run_rows(sources.profile),
    }
    if sources.qhas and sources.qhas.operators:
        tables["npu_operators"] = [*sources.qhas.operators]
    if len(read) > 1:
        chips = [_chip(session, of_chip) for session, of_chip in read]
        tables["npu_chips"], tables["npu_chip_nodes"] = chip_rows(chips), chip_node_rows(chips)
    return NpuReport(document, tables)


def _chip(session: Session, sources: Sources) -> Chip:
    nodes = sources.nodes()
    figures = {name: figure.value for name, figure in sections(sources, nodes)[SECTIONS[1]].items()}
    figures["vtcm_peak_bytes"] = sources.schematic.vtcm_peak_bytes if sources.schematic else None
    known = [error["max_error"] for error in session.errors if error["max_error"] is not None]
    is_known = known and len(known) == len(session.errors)
    return Chip(session.soc_model or 0, nodes, figures, max(known) if is_known else None)


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip by Qualcomm's number, the nodes as compiled for it, its figures by name, and the largest error."""

    soc_model: int
    nodes: Sequence[NpuNode]
    figures: Mapping[str, float | None]
    max_error: float | None


def chip_rows(chips: Sequence[Chip]) -> list[NpuChipsRow]:
    return [
        {
            "soc_model": chip.soc_model,
            "npu_node_count": len(chip.nodes),
            # Only the schematic says which nodes others compute.
            "fused_node_count": None
            if any(node.ops is None for node in chip.nodes)
            else sum(bool(node.fused_into) for node in chip.nodes),
            "moved_node_count": len(_moved(chip, chips[0])),
            "htp_op_count": _whole(chip, "htp_op_count"),
            "hvx_op_count": _whole(chip, "hvx_op_count"),
            "hmx_op_count": _whole(chip, "hmx_op_count"),
            "dma_op_count": _whole(chip, "dma_op_count"),
            "dram_read_bytes": _whole(chip, "dram_read_bytes"),
            "dram_write_bytes": _whole(chip, "dram_write_bytes"),
            "vtcm_read_bytes": _whole(chip, "vtcm_read_bytes"),
            "vtcm_write_bytes": _whole(chip, "vtcm_write_bytes"),
            "spill_bytes": _whole(chip, "spill_bytes"),
            "vtcm_peak_bytes": _whole(chip, "vtcm_peak_bytes"),
            "max_error": chip.max_error,
        }
        for chip in chips
    ]


def chip_node_rows(chips: Sequence[Chip]) -> list[NpuChipNodesRow]:
    rows: list[NpuChipNodesRow] = []
    for chip in chips:
        moved = _moved(chip, chips[0])
        for node in chip.nodes:
            rows.append({"soc_model": chip.soc_model, **placement_cells(node), "is_moved": node.op_id in moved})
    return rows


def _whole(chip: Chip, name: str) -> int | None:
    value = chip.figures.get(name)
    return None if value is None else int(value)


def _moved(chip: Chip, first: Chip) -> set[int]:
    known = {node.op_id: node.placement for node in first.nodes}
    return {node.op_id for node in chip.nodes if known.get(node.op_id) != node.placement}


def read_baseline(folder: Path) -> dict[str, object]:
    path = folder / "npu_summary.json"
    content = read_json(path, MOST_BYTES, BASELINE)
    for title in SECTIONS:
        section = content.get(title)
        if not isinstance(section, dict):
            raise PipelineError(path, f"has no object {title!r}", f"give {BASELINE}")
        for name in section:
            optional_number(path, section, name)
    return content


def since_baseline(before: Mapping[str, object], now: Mapping[str, object]) -> dict[str, list[Any]]:
    """Return the figures that either summary knows, with the change over the old value, and how the profiles differ."""
    changes = []
    for title in SECTIONS:
        old, new = _section(before, title), _section(now, title)
        for name in dict.fromkeys((*new, *old)):
            was, is_now = old.get(name), new.get(name)
            share = is_now / was - 1 if was and is_now is not None else None
            if (was, is_now) != (None, None):
                changes.append({"figure": name, "before": was, "now": is_now, "change_share": share})
    doubts = [
        f"the baseline has {name} {before.get(name)}, this profile {now[name]}"
        for name in SAME
        if before.get(name) not in UNKNOWN and now[name] not in UNKNOWN and before[name] != now[name]
    ]
    return {"changes": changes, "doubts": doubts}


def _section(summary: Mapping[str, object], title: str) -> dict[str, float | None]:
    section = summary[title]
    return section if isinstance(section, dict) else {}
