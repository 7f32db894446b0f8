"""The common part of the scripts of load tests: the tables of one load, and the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from common.artifacts.stages import LOAD
from common.artifacts.transaction import Transaction
from common.cli.flags.settings import Settings
from common.cli.stage import StageRun
from common.cli.streams import BROKE_THRESHOLD
from common.messages.note_kinds import BROKEN
from common.metrics.ingest import TOKEN_FILE
from common.table_rows import LoadStepsRow, LoadSummaryDocument

if TYPE_CHECKING:
    import pandas as pd


ROWS_RESERVED = 7  # of those that a transaction counts in, for a request that has a batch of its own
OF_SOME_LOADS = ("load_disturbances", "load_endpoint", "loadgen_summary")  # they name batches of these tables


class TestedLoad(Protocol):
    """The tables of one load, and why they are incomplete."""

    @property
    def requests(self) -> pd.DataFrame: ...
    @property
    def batches(self) -> pd.DataFrame: ...
    @property
    def summary(self) -> LoadSummaryDocument: ...
    @property
    def steps(self) -> list[LoadStepsRow]: ...
    @property
    def histogram_log(self) -> str: ...
    @property
    def lacks(self) -> list[str]: ...


def add_load(transaction: Transaction, tables: TestedLoad) -> None:
    """Write the tables of one load; tables that name requests of an earlier load are removed unless written anew."""
    transaction.add_table("load_requests", tables.requests)
    transaction.add_table("load_batches", tables.batches)
    transaction.add_document("load_summary", tables.summary)
    transaction.add_rows("load_steps", tables.steps)
    transaction.add_text("load_histogram", tables.histogram_log)
    transaction.mark_incomplete(tables.lacks, *LOAD.split())
    transaction.remove_others(OF_SOME_LOADS)


def post_of(given: Settings) -> tuple[str | None, Path]:
    """Return where telemetry is posted, and the file of the dashboard's token."""
    return given.post, given.post_token or given.out / TOKEN_FILE


def exit_code(stage: StageRun, broken: Sequence[str]) -> int:
    """Note which thresholds a load breaks, and return the exit code that says whether it breaks any."""
    stage.note(*(f"{BROKEN}: {problem}" for problem in broken))
    return BROKE_THRESHOLD if broken else 0
