"""The history in SQLite: figures per second, per 10 seconds and per minute, each kept for as long as it is useful.

The database is in WAL mode. A transaction per second holds all that happened in it, so a killed process loses at most
that second, and never the database. A row is a JSON text that an answer is joined from, so that an hour is read in
milliseconds.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.messages.errors import PipelineError

# Length of a row's time in s, and for how long rows of it are kept.
LEVELS_S = {1: 2 * 3600, 10: 2 * 86_400, 60: 30 * 86_400}
LONGEST_S = max(LEVELS_S.values())
MOST_POINTS = 1000  # of an answer that names no step
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    run_id INTEGER PRIMARY KEY, model TEXT NOT NULL, started_s REAL NOT NULL, ended_s REAL NOT NULL,
    run_count INTEGER NOT NULL DEFAULT 0, settings TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS points (
    step_s INTEGER NOT NULL, time_s INTEGER NOT NULL, run_id INTEGER NOT NULL, figures TEXT NOT NULL,
    PRIMARY KEY (step_s, time_s, run_id)
) WITHOUT ROWID;
"""
_VERSION = 1
_REMEDY = "move it away, or give another folder with <out>"


class Store:
    """One database, used by the threads of one process; several processes may share the file.

    Who reads has a connection of its own, so that an answer does not wait for the writer. A missing file is made,
    readable by its owner alone.

    Raises:
        PipelineError: it cannot be made, or is something else.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock, self._past_lock = path, threading.Lock(), threading.Lock()
        with self._reported():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._database, self._past = (
                sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False) for _ in range(2)
            )
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise PipelineError(path, f"has the format {version}, not {_VERSION}", _REMEDY)
            settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            self._database.executescript(f"{settings} {_SCHEMA} PRAGMA user_version = {_VERSION};")

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn what the database raises into one line."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise PipelineError(self._path, f"cannot be used as the history ({error})", _REMEDY) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._reported(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database

    def begin(self, model: str, started_s: float, settings: Mapping[str, Any]) -> int:
        """Enter a run of the monitor; return its number."""
        values = (model, started_s, started_s, json.dumps(settings))
        with self._transaction() as database:
            command = "INSERT INTO runs (model, started_s, ended_s, settings) VALUES (?, ?, ?, ?)"
            return int(database.execute(command, values).lastrowid or 0)

    def add(self, run_id: int, time_s: float, run_count: int, rows: Mapping[int, Mapping[str, Any]]) -> None:
        """Enter the figures of now: for each step, those of the step that is going on, in place of earlier ones."""
        points = [(step, int(time_s) // step * step, run_id, json.dumps(row)) for step, row in rows.items()]
        with self._transaction() as database:
            database.execute("UPDATE runs SET ended_s = ?, run_count = ? WHERE run_id = ?", (time_s, run_count, run_id))
            database.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", points)

    def forget(self, now_s: float) -> None:
        """Delete what is older than it is kept for, and runs that nothing is left of."""
        with self._transaction() as database:
            for step, kept_s in LEVELS_S.items():
                database.execute("DELETE FROM points WHERE step_s = ? AND time_s < ?", (step, now_s - kept_s))
            database.execute("DELETE FROM runs WHERE ended_s < ?", (now_s - LONGEST_S,))

    def history(self, now_s: float, duration_s: float, step_s: float | None = None) -> str:
        """Return the figures of the last ``duration_s`` as JSON: ``{"step_s": …, "points": [[time, run, {…}], …]}``.

        The step is the largest kept one that is not above ``step_s``; without one it gives at most ``MOST_POINTS``.
        """
        step = kept_step(duration_s, step_s)
        query = "SELECT time_s, run_id, figures FROM points WHERE step_s = ? AND time_s > ? ORDER BY time_s, run_id"
        with self._past_lock, self._reported():
            rows = self._past.execute(query, (step, now_s - duration_s)).fetchall()
        points = ",".join(f"[{time_s},{run_id},{figures}]" for time_s, run_id, figures in rows)
        return f'{{"step_s":{step},"points":[{points}]}}'

    def runs(self) -> list[dict[str, Any]]:
        names = ("run_id", "model", "started_s", "ended_s", "run_count", "settings")
        with self._past_lock, self._reported():
            rows = self._past.execute(f"SELECT {', '.join(names)} FROM runs ORDER BY run_id DESC LIMIT 1000")
            return [dict(zip(names, (*row[:-1], json.loads(row[-1])), strict=True)) for row in rows]

    def close(self) -> None:
        """Close the database, after what other threads do with it."""
        with self._past_lock:
            self._past.close()
        with self._lock:
            self._database.close()


def kept_step(duration_s: float, step_s: float | None) -> int:
    """Return the step in which an answer is given; see :meth:`Store.history`."""
    steps = sorted(LEVELS_S)
    if step_s is not None:
        return max((step for step in steps if step <= step_s), default=steps[0])
    return next((step for step in steps if duration_s / step <= MOST_POINTS), steps[-1])
