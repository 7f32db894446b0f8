"""The history on disk: one row per figure, one run once, two writers at once, and files that are something else."""

from __future__ import annotations

import multiprocessing
import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from common.history.record import FigureName, Record, Revision
from common.history.store import APPLICATION, VERSION, RecordFile
from common.messages.errors import PipelineError, UpstreamError

NAME = FigureName("end_to_end", "p50_us", "")


def run(identity, value_us=1009.0, model_id="m" * 64, **conditions):
    revision = Revision(f"commit of {identity}", is_dirty=False)
    figures = {NAME: value_us, FigureName("node", "node_latency_us", "conv|'1"): 11.0}
    described = (identity, revision, "out", model_id, "m.onnx", {"batch": 1})
    return Record(*described, {"hostname": "quiet", **conditions}, (), figures)


def add(store, record):
    with store.entering(record) as entry:
        entry.commit()
    return entry.number, entry.is_new


def rows(path, query):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_a_run_comes_back_as_it_was_recorded(tmp_path):
    store, first = RecordFile(tmp_path / "runs.sqlite"), run("a", clock_mhz=2100.5, threads=3, note=None)
    assert add(store, first) == (1, True)
    (known,) = store.newest(7)
    assert replace(known, number=0, recorded_at="") == first
    assert known.recorded_at.endswith("+00:00")


def test_the_file_has_a_row_per_figure_with_its_run_and_commit(tmp_path):
    path = tmp_path / "runs.sqlite"
    for identity, value in (("a", 7.0), ("b", 11.0)):
        add(RecordFile(path), run(identity, value))
    query = "SELECT run_number, commit_name, figure_value FROM recorded WHERE compared_figure = 'p50_us'"
    assert rows(path, query) == [(1, "commit of a", 7.0), (2, "commit of b", 11.0)]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]
    assert rows(path, "PRAGMA user_version") == [(VERSION,)]


def test_a_run_that_is_recorded_again_is_one_run_with_the_figures_of_now(tmp_path):
    store = RecordFile(tmp_path / "runs.sqlite")
    add(store, run("a"))
    add(store, run("b"))
    again = replace(run("a", 13.0), revision=Revision("later", is_dirty=True))
    assert add(store, again) == (1, False)
    known = store.newest(7)
    assert [(one.number, one.revision.commit) for one in known] == [(1, "commit of a"), (2, "commit of b")]
    assert known[0].figures[NAME] == 13.0


def test_the_last_runs_of_the_same_thing_are_read(tmp_path):
    store = RecordFile(tmp_path / "runs.sqlite")
    for number in range(5):
        add(store, run(f"a{number}"))
    for identity, changes in (("host", {"hostname": "other"}), ("threads", {"threads": 7})):
        add(store, run(identity, **changes))
        assert [one.identity for one in store.newest(7)] == [identity]
    add(store, run("n", model_id="n" * 64))
    assert [one.identity for one in store.newest(7)] == ["n"]
    assert [one.identity for one in store.newest(3, is_across_models=True)] == ["a3", "a4", "n"]


def write_many(path, writer):
    for number in range(23):
        add(RecordFile(path), run(f"{writer} {number}"))


@pytest.mark.slow
def test_two_writers_at_once_lose_nothing(tmp_path):
    """From the making of the file on."""
    path, context = tmp_path / "runs.sqlite", multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(path, name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(RecordFile(path).newest(100)) == 46
    assert sorted(number for (number,) in rows(path, "SELECT run_number FROM runs")) == [*range(1, 47)]


def test_who_reads_does_not_wait_for_who_writes(tmp_path):
    path = tmp_path / "runs.sqlite"
    add(RecordFile(path), run("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM figures")
        assert RecordFile(path).newest(7)[0].figures[NAME] == 1009.0
        writer.execute("ROLLBACK")


def foreign(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runs (run_number)")


def future(path):
    add(RecordFile(path), run("a"))
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")


def empty_foreign(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA application_id = {APPLICATION + 1}")


def changed(*commands):
    """Return what makes a history with a record and lets SQLite change it."""

    def make(path):
        add(RecordFile(path), run("a"))
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA ignore_check_constraints = ON")
            for command in commands:
                database.execute(command)

    return make


ENDLESS = "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count) SELECT"
TRIGGER = (
    f"CREATE TRIGGER more AFTER INSERT ON figures BEGIN INSERT INTO figures {ENDLESS} n, n, n, n, n FROM count; END"
)
HOSTILE = {
    "view": (
        ("DROP TABLE figures", f"CREATE VIEW figures AS {ENDLESS} 1 AS run_number, n FROM count"),
        "has other tables than this program made, or triggers",
    ),
    "trigger": ((TRIGGER,), "has other tables than this program made, or triggers"),
    "column": (("ALTER TABLE runs ADD COLUMN note",), "has other tables than this program made, or triggers"),
    "value": (("UPDATE figures SET figure_value = 'much'",), "has an unreadable figure in its record 1"),
    "infinite": (("UPDATE figures SET figure_value = 1e999",), "has an unreadable figure in its record 1"),
    "bytes": (("UPDATE figures SET compared_subject = x'ff'",), "has an unreadable figure in its record 1"),
    "unknown": (("UPDATE figures SET compared_kind = 'x'",), "has no known figure in its newest record"),
    "deep": (("UPDATE runs SET conditions = printf('%.*c', 100000, '[')",), "has an unreadable record 1"),
    "size": (('UPDATE runs SET dimensions = \'{"batch": "x"}\'',), "has an unreadable record 1"),
    "list": (("UPDATE runs SET conditions = '[]'",), "has an unreadable record 1"),
    "doubt": (("UPDATE runs SET doubts = '[1]'",), "has an unreadable record 1"),
    "path": (("UPDATE runs SET model_path = x'ff'",), "has an unreadable record 1"),
}


@pytest.mark.parametrize(("commands", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_a_history_that_somebody_changed_is_refused_in_one_line(tmp_path, commands, problem):
    path = tmp_path / "runs.sqlite"
    changed(*commands)(path)
    with pytest.raises(PipelineError, match=re.escape(problem)) as caught:
        RecordFile(path).newest(7)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_trigger_is_refused_before_anything_is_entered(tmp_path):
    path = tmp_path / "runs.sqlite"
    changed(TRIGGER)(path)
    with pytest.raises(PipelineError, match="or triggers"):
        add(RecordFile(path), run("b"))
    assert rows(path, "SELECT COUNT(*) FROM runs") == [(1,)]


def torn(path):
    for number in range(97):
        add(RecordFile(path), run(f"a{number}"))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.write_bytes(b"commit,value\n" * 97), "file is not a database"),
        (foreign, "is no history of records"),
        (empty_foreign, "is no history of records"),
        (future, f"is a history of version {VERSION + 1}, not {VERSION}"),
        (torn, "cannot be used as the history"),
        (lambda path: path.mkdir(), "cannot be used as the history (it is not a regular file)"),
        (os.mkfifo, "cannot be used as the history (it is not a regular file)"),
        (lambda path: path.symlink_to(path), "cannot be used as the history (Too many levels of symbolic links)"),
        (lambda path: path.symlink_to(path.parent), "cannot be used as the history (it is not a regular file)"),
    ],
    ids=[
        "text",
        "foreign",
        "marked",
        "future",
        "torn",
        "folder",
        "pipe",
        "loop",
        "link to a folder",
    ],
)
def test_what_is_no_history_is_named_in_one_line_and_left_as_it_is(tmp_path, make, problem):
    path = tmp_path / "runs.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    for use in (lambda: add(RecordFile(path), run("z")), lambda: RecordFile(path).newest(7)):
        with pytest.raises(PipelineError) as failure:
            use()
        assert problem in str(failure.value)
        assert "\n" not in str(failure.value)
        assert str(failure.value).endswith("; move it away, or give another file")
    assert before == (path.read_bytes() if path.is_file() else None)
    assert failure.value.exit_code == 1


def test_conditions_that_are_no_json_are_named(tmp_path):
    path = tmp_path / "runs.sqlite"
    add(RecordFile(path), run("a"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET conditions = '{'")
    with pytest.raises(PipelineError, match="has an unreadable record 1"):
        RecordFile(path).newest(7)


def test_without_a_history_there_is_nothing_to_read_and_nothing_is_made(tmp_path):
    with pytest.raises(UpstreamError, match="not found; record a measurement first"):
        RecordFile(tmp_path / "runs.sqlite").newest(7)
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(PipelineError, match="unable to open database file"):
        add(RecordFile(tmp_path / "no" / "runs.sqlite"), run("a"))


def test_an_empty_file_becomes_a_history(tmp_path):
    (tmp_path / "runs.sqlite").touch()
    assert add(RecordFile(tmp_path / "runs.sqlite"), run("a")) == (1, True)


def test_a_run_that_cannot_be_entered_leaves_the_runs_before(tmp_path):
    store = RecordFile(tmp_path / "runs.sqlite")
    add(store, run("a"))
    with pytest.raises(PipelineError, match="cannot be used"):
        add(store, run("b", float("nan")))
    assert [one.identity for one in store.newest(7)] == ["a"]


def test_a_record_that_is_not_committed_leaves_no_trace(tmp_path):
    path = tmp_path / "runs.sqlite"
    add(RecordFile(path), run("a"))
    with pytest.raises(ZeroDivisionError), RecordFile(path).entering(run("b")):
        raise ZeroDivisionError
    with RecordFile(path).entering(run("c")) as entry:
        assert (entry.number, entry.is_new) == (2, True)
    assert [one.identity for one in RecordFile(path).newest(7)] == ["a"]


def test_whoever_holds_the_file_is_waited_for_in_steps_that_hear_a_signal(tmp_path, monkeypatch):
    """The wait is ours: SQLite's own one would end before Python handles a signal."""
    path, asked = tmp_path / "runs.sqlite", []
    add(RecordFile(path), run("a"))
    monkeypatch.setattr("common.history.store.ATTEMPT_S", 1e-3)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")

        def time_s():
            asked.append(1)
            if len(asked) == 5:
                writer.execute("ROLLBACK")
            return 0.0

        monkeypatch.setattr("common.history.store.time.monotonic", time_s)
        assert add(RecordFile(path), run("b")) == (2, True)
    assert len(asked) >= 5


@pytest.mark.parametrize("text", [b"\xff\xfe", b'"\xed\xa0\x80"', b'{"a": "\\ud800"}'], ids=["bytes", "half", "escape"])
@pytest.mark.parametrize("column", ["conditions", "folder", "model_path", "doubts", "commit_name"])
def test_text_that_is_not_utf_8_is_named_or_read(tmp_path, text, column):
    path = tmp_path / "runs.sqlite"
    add(RecordFile(path), run("a"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE runs SET {column} = CAST(? AS TEXT)", (text,))
    try:
        RecordFile(path).newest(7)
    except PipelineError as error:
        assert str(error).startswith(f"{path}: ")


def test_a_definition_of_a_table_that_is_not_utf_8_is_one_line(tmp_path):
    """Python's own complaint has no code of SQLite."""
    path = tmp_path / "runs.sqlite"
    add(RecordFile(path), run("a"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET sql = CAST(sql || ? AS TEXT) WHERE name = 'runs'", (b" /* \xff\xfe */",)
        )
    for use in (lambda store: store.newest(7), lambda store: add(store, run("b"))):
        with pytest.raises(PipelineError, match=r"cannot be used as the history \("):
            use(RecordFile(path))
