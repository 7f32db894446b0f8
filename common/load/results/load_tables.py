"""What a load test leaves: tables, documents, what they lack, and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.load.requests.load_record import LoadRecord
from common.load.results.load_figures import LoadRun, batch_columns, request_columns, steady, summary
from common.load.results.standard_names import standard_metrics

RUN = ("load_requests", "load_batches", "load_summary")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LoadTables:
    """What a load test leaves.

    Attributes:
        columns: tables of a run, by name, as columns.
        rows: other tables, by name.
        documents: by name.
        incomplete: what tables lack, by name.
        notes: what the user is to know.
        figures: further ones for the document of a run.
    """

    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    incomplete: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


def interrupted(reason: str, *names: str, notes: Sequence[str] = (), **content: Any) -> LoadTables:
    """Return tables of a measurement that a signal ended; whole ones where there is no reason."""
    reasons = [reason] if reason else []
    return LoadTables(**content, incomplete=dict.fromkeys(names, reasons), notes=[*notes, *reasons])


def interruption(record: LoadRecord) -> list[str]:
    """Say that a signal ended a run, if one did."""
    return [f"a signal ended the run after {record.ended_ns / 1e9:.3g} s"] if record.is_interrupted else []


def run_tables(run: LoadRun, setup: Mapping[str, Any], held: Mapping[str, Any]) -> LoadTables:
    """Return requests, batches and figures of a run.

    Args:
        run: what was measured.
        setup: figures of how it was set up.
        held: what the process holds at the end.
    """
    record, state = run.record, steady(run.record)
    document = {"loadgen_results": {}, "interference": {}, **summary(run, state), **setup, **held}
    document["standard_metrics"] = standard_metrics(record, held)
    return interrupted(
        "".join(interruption(record)),
        *RUN,
        columns={
            "load_requests": request_columns(record, document["warmup_request_count"]),
            "load_batches": batch_columns(run),
        },
        documents={"load_summary": document},
    )
