"""A commit that is cut short: killed at each rename of each stage, by SIGKILL, and completed by the next start."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from common.artifacts import journal
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.folder import Folder
from common.artifacts.journal import JOURNAL, LOCK, STAGING, settle, tidy
from common.artifacts.provenance import Provenance
from common.artifacts.stages import STAGES
from common.artifacts.transaction import Transaction
from common.messages.errors import PipelineError, UpstreamError
from tests.support.paths import ROOT
from tests.support.tables.dag import write_executed
from tests.support.tables.stored import MERGE, edges, store

PROFILE = "01_profile_onnx.py"
# Each stage does the same; `make test` tries two of them.
SOME_STAGES = [
    script if script[:2] in ("04", "11") else pytest.param(script, marks=pytest.mark.slow) for script in STAGES
]


@pytest.fixture(autouse=True)
def unsynchronised(monkeypatch):
    """Waiting for the disk takes most of the time; a killed process loses nothing that the kernel has."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def write_all(folder, script, text):
    """Write all that a stage writes, without its work; a text holds no table, but is put in place like one."""
    with Transaction(folder, Provenance(script, text)) as writing:
        for name in STAGES[script].writes:
            if ARTIFACTS[name].form == "picture":
                writing.add_picture(name, {".svg": text.encode()})
            else:
                writing.add_text(name, text)


def content(folder):
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def killed_at(rename, folder, script, text):
    """Write in a process of its own that is killed instead of doing one of its renames; whether it was."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            killing_replace(rename)
            write_all(folder, script, text)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def killing_replace(rename):
    done = journal.Path.replace
    left = iter(range(rename, -1, -1))

    def replace(self, target):
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done(self, target)

    journal.Path.replace = replace


def expected(folder, script, text):
    write_all(folder, script, text)
    return content(folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the child of the fork does nothing but write files
@pytest.mark.parametrize("script", SOME_STAGES)
def test_killed_at_each_rename_everything_is_old_or_new_at_the_next_start(tmp_path, script):
    old, new = (expected(tmp_path / text, script, text) for text in ("old", "new"))
    for rename in range(len(new) + 1):  # the first rename is that of the journal
        folder = tmp_path / str(rename)
        write_all(folder, script, "old")
        assert killed_at(rename, folder, script, "new")
        if rename > 1:
            assert (folder / STAGING / JOURNAL).exists()
        settle(folder)
        assert {**content(folder), "": b""} == {**(new if rename else old), **leftover(folder), "": b""}
        write_all(folder, script, "new")
        assert content(folder) == new
    assert not killed_at(len(new) + 1, tmp_path / "0", script, "new")


def leftover(folder):
    return {name: text for name, text in content(folder).items() if name.startswith(STAGING)}


@pytest.mark.slow
def test_the_primary_artifact_goes_last_so_that_make_runs_a_killed_stage_again(tmp_path):
    for script, stage in STAGES.items():
        folder, primary = tmp_path / script, ARTIFACTS[stage.primary].file
        write_all(folder, script, "old")
        count = len(content(folder))
        assert killed_at(count, folder, script, "new")
        old = {name for name, text in content(folder).items() if text == b"old" and not name.startswith(STAGING)}
        assert old == {primary}


def test_a_reader_completes_what_was_cut_short(tmp_path):
    with store(tmp_path).writing() as made:
        made.add_table("executed_edges", edges("old"))
    child = os.fork()
    if child == 0:
        killing_replace(2)
        with store(tmp_path).writing() as made:
            made.add_table("executed_edges", edges("new"))
        os._exit(0)
    os.waitpid(child, 0)
    assert store(tmp_path).table("executed_edges")["tensor"].tolist() == ["new"]
    assert not (tmp_path / STAGING).exists()


def test_a_reader_of_another_folder_completes_that_one(tmp_path):
    """The ceilings stand in out/ whatever the folder of the tables is."""
    shared = tmp_path / "out"
    write_all(shared, "00_host_ceilings.py", "old")
    assert killed_at(1, shared, "00_host_ceilings.py", "new")
    with pytest.raises(UpstreamError, match="corrupt"):  # a text is no document, but it is the new one
        Folder(tmp_path, Provenance(MERGE, "")).document("host_ceilings", shared / "host_ceilings.json")
    assert (shared / "host_ceilings.json").read_bytes() == b"new"


def test_a_reader_waits_for_a_commit_that_goes_on(tmp_path):
    write_all(tmp_path, PROFILE, "old")
    assert killed_at(2, tmp_path, PROFILE, "new")
    with (tmp_path / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reader = threading.Thread(target=settle, args=(tmp_path,))
        reader.start()
        reader.join(0.05)
        assert reader.is_alive()
        assert (tmp_path / STAGING / JOURNAL).exists()
    reader.join()
    assert not (tmp_path / STAGING).exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="GNU make is not installed")
def test_make_completes_what_was_cut_short_even_if_no_stage_is_due(tmp_path):
    write_all(tmp_path, "06_plots.py", "old")
    assert killed_at(3, tmp_path, "06_plots.py", "new")
    command = ["make", "help", f"OUT={tmp_path}", f"PYTHON={sys.executable}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert content(tmp_path) == expected(tmp_path / "new", "06_plots.py", "new")


def test_tidying_drops_what_a_killed_stage_left_and_lets_a_stage_that_runs_alone(tmp_path):
    with Transaction(tmp_path, Provenance(MERGE, "")) as writing:
        writing.add_text("op_roofline", "half")
        tidy(tmp_path)
        assert (tmp_path / STAGING / "op_roofline.csv").exists()
    (tmp_path / STAGING).mkdir()
    tidy(tmp_path)
    assert not (tmp_path / STAGING).exists()


def test_weights_that_a_killed_measurement_left_go_at_the_next_start(tmp_path):
    """OpenVINO's build writes the graph that it was given with its weights, by name, into the scratch folder."""
    with pytest.raises(_KilledError), store(tmp_path, "01_profile_onnx.py").writing() as writing:
        with writing.scratch() as scratch:
            left = [scratch / "given.onnx", scratch / "given.onnx.data"]
            for file in left:
                file.write_bytes(bytes(7))
            left_folder = tmp_path / "left"
            shutil.copytree(tmp_path / STAGING, left_folder)  # what is there at a kill -9
        raise _KilledError
    assert not any(file.exists() for file in left)
    left_folder.rename(tmp_path / STAGING)
    assert all(file.is_file() for file in left)
    tidy(tmp_path)
    assert not (tmp_path / STAGING).exists()


class _KilledError(Exception):
    """Stands for the end of the process."""


def test_a_file_in_the_place_of_the_folder_of_plots_is_called_no_folder(tmp_path):
    (tmp_path / "plots").write_text("notes of my own")
    said = rf"^{tmp_path}/plots: cannot be written \(it is no folder\); move it away"
    with pytest.raises(PipelineError, match=said), store(tmp_path, "06_plots.py").writing():
        pass
    assert (tmp_path / "plots").read_text() == "notes of my own"


def test_settling_a_folder_that_cannot_be_written_names_no_quantity(tmp_path):
    """The command has no flags, so nothing replaces ``<out>``."""
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "common.artifacts", "settle", str(tmp_path / "file")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "<" not in done.stderr and done.stderr.count("\n") == 1


def test_a_signal_amid_the_renames_waits_for_their_end(tmp_path, monkeypatch):
    write_all(tmp_path, MERGE, "old")
    done = journal.Path.replace

    def interrupting(self, target):
        os.kill(os.getpid(), signal.SIGINT)
        return done(self, target)

    monkeypatch.setattr(journal.Path, "replace", interrupting)
    with pytest.raises(KeyboardInterrupt):
        write_all(tmp_path, MERGE, "new")
    monkeypatch.undo()
    assert content(tmp_path) == expected(tmp_path / "new", MERGE, "new")


# --- what cannot be replaced ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SOME_STAGES)
def test_a_folder_in_the_place_of_any_file_is_found_before_anything_is_replaced(tmp_path, script):
    new = expected(tmp_path / "new", script, "new")
    for name in new:
        folder = tmp_path / name.replace("/", "-")
        write_all(folder, script, "old")
        (folder / name).unlink()
        (folder / name / "inside").mkdir(parents=True)
        before = content(folder)
        with pytest.raises(PipelineError, match=r"cannot be written \(it is a folder\); move it away or use <out>"):
            write_all(folder, script, "new")
        assert content(folder) == before


def test_a_folder_in_the_place_of_a_table_is_found_before_the_work(tmp_path):
    (tmp_path / "op_latency.csv").mkdir()
    with pytest.raises(PipelineError, match=r"op_latency\.csv: cannot be written \(it is a folder\)"):
        Transaction(tmp_path, Provenance(PROFILE, "")).__enter__()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).symlink_to(victim)
    with pytest.raises(PipelineError, match=r"\.lock: is a link, which is not followed; remove it"):
        write_all(tmp_path / "out", MERGE, "new")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("text", ["somebody else's notes\n", ""])
def test_a_lock_of_another_program_keeps_its_content(tmp_path, text):
    (tmp_path / LOCK).write_text(text)
    write_all(tmp_path, MERGE, "new")
    assert (tmp_path / LOCK).read_text() == text or not text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "[" * 100_000, '{"files": [["a"]], "obsolete": []}', '{"files": []}', "\xff"]
)
def test_a_journal_that_is_none_is_one_line(tmp_path, text):
    (tmp_path / STAGING).mkdir()
    (tmp_path / STAGING / JOURNAL).write_text(text, encoding="latin-1")
    for start in (settle, lambda folder: write_all(folder, MERGE, "new")):
        with pytest.raises(PipelineError, match=rf"{JOURNAL}: corrupt \(.*\); remove .*{STAGING}$"):
            start(tmp_path)


@pytest.mark.parametrize(
    "name", ["../victim", "/etc/passwd", "", "plots/../../victim", ".", "link/victim", "a\0b", "\ud800", ["b"], JOURNAL]
)
@pytest.mark.parametrize("place", ["staged", "target", "obsolete"])
def test_a_journal_that_names_files_of_others_is_refused(tmp_path, name, place):
    names = {"staged": "a", "target": "op_metrics.csv", "obsolete": "plots/latency.png", place: name}
    (tmp_path / "victim").write_text("precious")
    staging = tmp_path / "out" / STAGING
    staging.mkdir(parents=True)
    (staging / "a").write_text("x")
    entries = {"files": [[names["staged"], names["target"]]], "obsolete": [names["obsolete"]]}
    (staging / JOURNAL).write_text(json.dumps(entries))
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    with pytest.raises(PipelineError, match=r"journal\.json: corrupt \("):
        settle(tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
@pytest.mark.parametrize("name", [f"{STAGING}/{JOURNAL}", LOCK])
def test_a_pipe_a_folder_or_a_link_in_the_place_of_journal_or_lock_is_one_line(tmp_path, make, name):
    (tmp_path / STAGING).mkdir()
    make(tmp_path / name)
    for start in (settle, lambda folder: write_all(folder, MERGE, "new")):
        if name != LOCK or start is not settle:  # without a journal, readers need no lock
            with pytest.raises(PipelineError):
                start(tmp_path)


def test_the_journal_in_a_folder_that_is_linked_to_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / JOURNAL).write_text('{"files": [["a", "b"]], "obsolete": []}')
    (tmp_path / "elsewhere" / "a").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / STAGING).symlink_to(tmp_path / "elsewhere")
    settle(tmp_path / "out")
    assert content(tmp_path / "out") == {}
    assert (tmp_path / "elsewhere" / "a").read_text() == "precious"


def test_a_link_or_a_file_in_the_place_of_the_staging_folder_goes_and_what_it_points_at_stays(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "text").write_text("precious")
    for make in (lambda path: path.symlink_to(tmp_path / "victim"), lambda path: path.write_text("x")):
        make(tmp_path / STAGING)
        write_all(tmp_path, MERGE, "new")
    assert (tmp_path / "victim" / "text").read_text() == "precious"


# --- whole scripts --------------------------------------------------------------------------------------------------

KILLED = """
import importlib, os, pathlib, signal, sys
done, left = pathlib.Path.replace, iter(range(int(sys.argv[1]), -1, -1))
def replace(self, target):
    if next(left) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return done(self, target)
pathlib.Path.replace = replace
sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("rename", range(5))
def test_04_killed_at_each_rename_is_completed_by_its_reader(tmp_path, rename):
    """Old: the critical path as it is; new: with the times of another table of nodes."""
    write_executed(tmp_path)
    stage = [sys.executable, "-c", KILLED, "99", "04_critical_path", "--out", str(tmp_path), "--quiet"]
    subprocess.run(stage, cwd=ROOT, check=True)
    old = content(tmp_path)
    stage[3], stage[-1:] = str(rename), ["--quiet", "--what-if", "Conv=4"]
    assert subprocess.run(stage, cwd=ROOT, check=False, capture_output=True).returncode == -signal.SIGKILL
    reader = Folder(tmp_path, Provenance("07_fpga_candidates.py", ""))
    reader.table("op_schedule")
    reader.table("critical_path")
    command = reader.provenance("critical_path").command
    assert command == reader.provenance("op_schedule").command
    assert ("Conv=4" in command) == (rename > 0)
    assert rename or old.items() <= content(tmp_path).items()


def test_a_staging_folder_that_cannot_be_removed_fails_no_commit(tmp_path, monkeypatch):
    """All is in place by then, and the next stage drops what is left."""

    def read_only(*_, **__):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as denied:
        denied.setattr(os, "rmdir", read_only)
        write_all(tmp_path, MERGE, "new")
    assert (tmp_path / ARTIFACTS[STAGES[MERGE].primary].file).read_text() == "new"
    assert not (tmp_path / STAGING / JOURNAL).exists()
    write_all(tmp_path, MERGE, "newer")
    assert not (tmp_path / STAGING).exists()
