"""The tables of one load: requests, batches, and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pandas as pd

from common.load.requests.load_record import LoadRecord
from common.load.results.load_figures import LoadTest, batch_columns, request_columns, steady, summary
from common.load.results.standard_names import standard_metrics

if TYPE_CHECKING:
    from common.table_rows import LoadSummaryDocument


@dataclass(frozen=True, slots=True)
class LoadTables:
    """The tables of one load.

    Attributes:
        lacks: why they are incomplete; empty where they are not.
    """

    requests: pd.DataFrame
    batches: pd.DataFrame
    summary: LoadSummaryDocument
    lacks: list[str]


def interruption(record: LoadRecord) -> list[str]:
    """Say that a signal ended a load, if one did."""
    return [f"a signal ended the load after {record.ended_ns / 1e9:.3g} s"] if record.is_interrupted else []


def load_tables(test: LoadTest, setup: Mapping[str, object], process: Mapping[str, int | None]) -> LoadTables:
    """Return requests, batches and summary of a load.

    Args:
        setup: how it was set up, and what else is known of it, by field of the summary.
        process: what this process holds at the end, by field of the summary.
    """
    record, state = test.record, steady(test.record)
    fields = {"loadgen_results": {}, "interference": {}, **summary(test, state), **setup, **process}
    document = cast("LoadSummaryDocument", {**fields, "standard_metrics": standard_metrics(record, process)})
    requests = pd.DataFrame(request_columns(record, document["warmup_request_count"]))
    return LoadTables(requests, pd.DataFrame(batch_columns(test)), document, interruption(record))
