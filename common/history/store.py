"""The history in SQLite: a row per record with its commit, and a row per figure of each record.

The database is in WAL mode, and a record is one transaction: readers never wait, two writers take turns, and a killed
writer leaves the earlier records. A file that is no history of this program gives one line of error, and is never
written to. The view ``recorded`` has a row per figure with its record and commit, for readers with SQLite.
"""

from __future__ import annotations

import json
import math
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from common.history.record import KNOWN, FigureName, Record, Revision
from common.messages.errors import PipelineError, UpstreamError

APPLICATION = 0x4F50_4855  # in the head of the file: SQLite's own field for whose database it is
VERSION = 1  # of the tables below
WAIT_S = 60.0  # for another writer
ATTEMPT_S = 0.1  # of a wait within SQLite, which hears no signal
_TABLES = (
    """CREATE TABLE runs (
    run_number INTEGER PRIMARY KEY AUTOINCREMENT, run_identity TEXT NOT NULL UNIQUE, recorded_at TEXT NOT NULL,
    commit_name TEXT NOT NULL, is_dirty INTEGER, folder TEXT NOT NULL, model_id TEXT NOT NULL, model_path TEXT NOT NULL,
    dimensions TEXT NOT NULL, conditions TEXT NOT NULL, doubts TEXT NOT NULL)""",
    """CREATE TABLE figures (
    run_number INTEGER NOT NULL REFERENCES runs, compared_kind TEXT NOT NULL, compared_figure TEXT NOT NULL,
    compared_subject TEXT NOT NULL, figure_value REAL NOT NULL CHECK (typeof(figure_value) = 'real'),
    PRIMARY KEY (run_number, compared_kind, compared_figure, compared_subject)) WITHOUT ROWID""",
)
_SCHEMA = (
    *_TABLES,
    """CREATE VIEW recorded AS
    SELECT run_number, recorded_at, commit_name, is_dirty, model_id, compared_kind, compared_figure, compared_subject,
    figure_value FROM figures JOIN runs USING (run_number)""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
_COLUMNS = (
    "run_number, run_identity, recorded_at, commit_name, is_dirty, folder, model_id, model_path, dimensions, "
    "conditions, doubts"
)
_REMEDY = "move it away, or give another file"  # of --append-to or --history
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Entry:
    """A record that is entered once ``commit`` is called; ``is_new`` is false where it was recorded before."""

    number: int
    is_new: bool
    commit: Callable[[], None]


class RecordFile:
    """A history on disk; nothing is opened before it is used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def entering(self, record: Record) -> Iterator[Entry]:
        """Yield a record that the block may commit; without a commit the file stays as it is.

        A measurement that is recorded again keeps its number, time and commit; its figures are entered anew.

        Raises:
            PipelineError: the file cannot be written, or is no history.
        """
        with self._opened(is_writing=True) as database:
            with database:
                _patiently(lambda: database.execute("BEGIN IMMEDIATE"))
                self._require_ours(database, is_writing=True)
                yield Entry(*_entered(database, record), lambda: _patiently(database.commit))
                database.rollback()  # what was not committed
            with suppress(sqlite3.OperationalError):  # another writer is faster, and does the same
                database.execute("PRAGMA journal_mode = WAL")

    def newest(self, count: int, *, is_across_models: bool = False) -> list[Record]:
        """Return at most so many of the newest records of one series, oldest first, with their figures.

        Args:
            is_across_models: whether another version of the model belongs to the series.

        Raises:
            UpstreamError: there is no history, or it has no record or no known figure.
            PipelineError: the file is no history.
        """
        with self._opened(is_writing=False) as database, database:
            database.execute("BEGIN")  # one state of the file, whatever is recorded meanwhile
            _patiently(lambda: self._require_ours(database, is_writing=False))
            query = f"SELECT {_COLUMNS} FROM runs ORDER BY run_number"
            records = [self._read(row) for row in database.execute(query)]
            if not records:
                raise UpstreamError(self._path, "has no record", "record a measurement first, with <append_to>")
            series = records[-1].series(is_across_models=is_across_models)
            alike = [record for record in records if record.series(is_across_models=is_across_models) == series]
            newest = [self._with_figures(database, record) for record in alike[-count:]]
            if not any((name.kind, name.figure) in KNOWN for name in newest[-1].figures):
                raise UpstreamError(self._path, "has no known figure in its newest record", "record another one")
            return newest

    @contextmanager
    def _opened(self, *, is_writing: bool) -> Iterator[sqlite3.Connection]:
        """Yield a connection.

        Raises:
            UpstreamError: there is no file to read.
            PipelineError: the file is no history, or cannot be used.
        """
        try:
            is_there = self._require_regular()
            if not is_there and not is_writing:
                raise UpstreamError(self._path, "not found", "record a measurement first, with <append_to>")
            address = f"{self._path.absolute().as_uri()}?mode={'rwc' if is_writing else 'ro'}"
            with closing(sqlite3.connect(address, ATTEMPT_S, isolation_level=None, uri=True)) as database:
                yield database
        except (sqlite3.Error, OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise PipelineError(self._path, f"cannot be used as the history ({reason})", _REMEDY) from error

    def _require_regular(self) -> bool:
        """Return whether the file is there; refuse a pipe, on which SQLite would wait for ever, and a folder."""
        try:
            mode = self._path.stat().st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(mode):
            raise PipelineError(self._path, "cannot be used as the history (it is not a regular file)", _REMEDY)
        return True

    def _require_ours(self, database: sqlite3.Connection, *, is_writing: bool) -> None:
        """Refuse a database of something else, or of another version; give an empty one its tables."""
        application, version = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        is_empty = not database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        if is_empty and is_writing and not application and not version:
            for command in _SCHEMA:
                database.execute(command)
        elif application != APPLICATION:
            raise PipelineError(self._path, "is no history of records", _REMEDY)
        elif version != VERSION:
            raise PipelineError(self._path, f"is a history of version {version}, not {VERSION}", _REMEDY)
        else:  # a view or a trigger may run for ever, and columns of other tables may hold anything
            made = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")}
            triggers = database.execute("SELECT COUNT(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()[0]
            if not made.issuperset(_TABLES) or triggers:
                raise PipelineError(self._path, "has other tables than this program made, or triggers", _REMEDY)

    def _read(self, row: tuple[Any, ...]) -> Record:
        number, identity, recorded_at, commit, is_dirty, folder, model_id, model_path, *parts = row
        texts = (identity, recorded_at, commit, folder, model_id, model_path)
        try:
            dimensions, conditions, doubts = map(json.loads, parts)
        except (ValueError, TypeError, RecursionError) as error:
            raise PipelineError(self._path, f"has an unreadable record {number} ({error})", _REMEDY) from error
        has_sizes = isinstance(dimensions, dict) and _are_all(int, dimensions.values())
        has_lists = isinstance(conditions, dict) and isinstance(doubts, list) and _are_all(str, doubts)
        if not (_are_all(str, texts) and has_sizes and has_lists):
            raise PipelineError(self._path, f"has an unreadable record {number}", _REMEDY)
        revision = Revision(commit, None if is_dirty is None else bool(is_dirty))
        described = (identity, revision, folder, model_id, model_path, dimensions, conditions, tuple(doubts))
        return Record(*described, number=number, recorded_at=recorded_at)

    def _with_figures(self, database: sqlite3.Connection, record: Record) -> Record:
        columns = "compared_kind, compared_figure, compared_subject, figure_value"
        query = f"SELECT {columns} FROM figures WHERE run_number = ?"
        figures = {FigureName(*name): value for *name, value in database.execute(query, (record.number,))}
        is_number = all(isinstance(value, float) and math.isfinite(value) for value in figures.values())
        if not (is_number and _are_all(str, chain.from_iterable(figures))):
            raise PipelineError(self._path, f"has an unreadable figure in its record {record.number}", _REMEDY)
        return replace(record, figures=figures)


def _are_all(kind: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """Return an answer of the database, for which it may have to wait for another writer.

    Raises:
        sqlite3.OperationalError: the other one takes longer than ``WAIT_S``.
    """
    until_s = time.monotonic() + WAIT_S
    while True:
        try:
            return ask()
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # none where a text is not UTF-8
            is_busy = code & 0xFF == sqlite3.SQLITE_BUSY  # of an extended code, too
            if not is_busy or time.monotonic() > until_s:
                raise


def _entered(database: sqlite3.Connection, record: Record) -> tuple[int, bool]:
    known = database.execute("SELECT run_number FROM runs WHERE run_identity = ?", (record.identity,)).fetchone()
    number = int(known[0]) if known else _new_number(database, record)
    database.execute("DELETE FROM figures WHERE run_number = ?", (number,))
    rows = [(number, *name, float(value)) for name, value in record.figures.items()]
    database.executemany("INSERT INTO figures VALUES (?, ?, ?, ?, ?)", rows)
    return number, known is None


def _new_number(database: sqlite3.Connection, record: Record) -> int:
    parts = (dict(record.dimensions), dict(record.conditions), list(record.doubts))
    values = (
        *(record.identity, datetime.now(UTC).isoformat(timespec="seconds")),
        *(record.revision.commit, record.revision.is_dirty, record.folder, record.model_id, record.model_path),
        *map(json.dumps, parts),
    )
    names = _COLUMNS.partition(", ")[2]
    return int(database.execute(f"INSERT INTO runs ({names}) VALUES ({', '.join('?' * 10)})", values).lastrowid or 0)
