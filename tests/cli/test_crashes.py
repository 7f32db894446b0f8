"""A crash of native code, in any thread: a last line, an exit code, and whole tables."""

import ctypes
import signal
import subprocess
import sys

import pytest

from common.artifacts import journal
from common.process.crashes import on_crash
from tests.support.paths import ROOT

SCRIPT = "03_merge_profile_metrics.py"
PROGRAM = """
import ctypes, os, sys, threading
from pathlib import Path
from common import cli
from tests.support.tables.stored import edges
libc = ctypes.CDLL(None)
def begin_thread(function):
    libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, function, None)
    threading.Event().wait()
def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
def main(argv):
    with cli.stage(cli.Parser({script!r}, ""), argv) as stage:
        with stage.writing() as transaction:
            transaction.add_table("executed_edges", edges())
            {amid}
        {after}
    return 0
sys.argv = [{script!r}, "--out", {out!r}]
cli.run(main)
"""
CRASHES = {
    "a null pointer while Python is held": ("ctypes.string_at(0)", "SIGSEGV"),
    "a null pointer in another thread": ("in_thread(lambda: libc.memset(0, 1, 1))", "SIGSEGV"),
    "abort": ("os.abort()", "SIGABRT"),
    "abort in a thread that Python does not know": ("begin_thread(libc.abort)", "SIGABRT"),
    "the signal of a division": ("libc.kill(os.getpid(), 8)", "SIGFPE"),
}


def crashed(out, amid="pass", after="pass", *options):
    program = PROGRAM.format(script=SCRIPT, out=str(out), amid=amid, after=after)
    words = [sys.executable, *options, "-c", program]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("how", CRASHES)
def test_a_crash_amid_the_work_is_one_line_and_replaces_nothing(tmp_path, how):
    code, name = CRASHES[how]
    ran = crashed(tmp_path, amid=code)
    line = f"{SCRIPT}: error: this host: native code crashed ({name}), perhaps because memory was short; "
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", line + "nothing was replaced\n")
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_a_line_of_the_library_of_cpp_comes_before_ours(tmp_path):
    ran = crashed(tmp_path, amid="ctypes.CDLL('libstdc++.so.6')._ZSt9terminatev()")
    first, last = ran.stderr.splitlines()
    assert first.startswith("terminate called")
    assert (ran.returncode, last.startswith(f"{SCRIPT}: error: this host: native code crashed (SIGABRT)")) == (1, True)


def test_a_crash_amid_the_renames_says_that_the_next_run_completes_them(tmp_path):
    crash = "import common.artifacts.journal as journal; journal._complete = lambda folder: ctypes.string_at(0)"
    ran = crashed(tmp_path, amid=crash)
    assert (ran.returncode, ran.stderr.rpartition("; ")[2]) == (1, "the next run puts its files in place\n")
    assert not (tmp_path / "executed_edges.csv").exists()
    journal.settle(tmp_path)
    assert (tmp_path / "executed_edges.csv").exists()


def test_a_crash_after_the_tables_says_that_they_are_in_place(tmp_path):
    ran = crashed(tmp_path, after="ctypes.string_at(0)")
    assert (ran.returncode, ran.stderr.rpartition("; ")[2]) == (1, "its files are in place\n")
    assert (tmp_path / "executed_edges.csv").exists()


def test_whoever_asked_for_a_traceback_gets_it(tmp_path):
    ran = crashed(tmp_path, "ctypes.string_at(0)", "pass", "-X", "faulthandler")
    assert ran.returncode == -11
    assert "Fatal Python error: Segmentation fault" in ran.stderr


def test_a_crash_within_the_handler_ends_the_process(tmp_path):
    """As where no memory is left even for the line."""
    ran = crashed(tmp_path, amid="cli.streams.interrupts.end_now = lambda *_: ctypes.string_at(0); ctypes.string_at(0)")
    assert (ran.returncode, ran.stdout, ran.stderr) == (-11, "", "")


@pytest.mark.parametrize("how", ["a null pointer while Python is held", "the signal of a division"])
def test_a_handler_that_fails_does_not_go_on(tmp_path, how):
    code, name = CRASHES[how]
    ran = crashed(tmp_path, amid=f"cli.streams.interrupts.end_now = None; {code}")
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.Signals[name], "", "")


def test_a_handler_that_waits_for_ever_is_ended(tmp_path):
    waits = "cli.streams.interrupts.end_now = lambda *_: threading.Event().wait(); "
    patience = "import common.process.crashes; common.process.crashes.PATIENCE_S = 1; "
    assert crashed(tmp_path, amid=f"{patience}{waits}ctypes.string_at(0)").returncode == -signal.SIGALRM


def test_a_host_without_memory_for_the_handler_is_short_of_memory(monkeypatch):
    """Found by the injection campaign: ctypes wraps what is raised while it converts an argument."""

    class Library:
        def sysv_signal(self, number, handler):
            raise ctypes.ArgumentError("argument 2: MemoryError:")

    monkeypatch.setattr("ctypes.CDLL", lambda name: Library())
    monkeypatch.setattr("faulthandler.is_enabled", lambda: False)
    with pytest.raises(MemoryError):
        on_crash(print)
