"""Signals at the start of a program, while it works, and after its files are in place."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common import cli
from common.cli import streams
from common.messages.errors import PipelineError
from common.process import interrupts
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_program
from tests.support.tables.stored import edges

SCRIPT = "03_merge_profile_metrics.py"
SCRIPTS = sorted(path.name for path in ROOT.glob("[0-9][0-9]_*.py"))
PROGRAMS = [*([script] for script in SCRIPTS), ["-m", "common.fpga"], ["-m", "common.runtime"]]
# The first of the large packages that a program imports; it meets the signal there.
INTERRUPTED_IMPORT = "import os, time; os.kill(os.getpid(), {number}); time.sleep(600)"


def heard():
    """A shell's background job ignores an interrupt, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("words", PROGRAMS, ids=lambda words: words[-1])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_amid_the_imports_ends_a_program_with_130_and_no_word(tmp_path, words, number):
    for package in ("pandas", "numpy", "yaml", "onnx", "onnxruntime", "shlex", "argparse"):
        (tmp_path / f"{package}.py").write_text(INTERRUPTED_IMPORT.format(number=int(number)))
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=env | {"PYTHONPATH": str(tmp_path)},
        preexec_fn=heard,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (interrupts.INTERRUPTED, "", "")


def test_a_signal_that_is_ignored_stays_ignored():
    """As under nohup, or in a background job."""
    program = (
        "import os, signal\nfrom common.process import interrupts\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "for install in (interrupts.end_at_once, interrupts.raise_interrupt):\n"
        "    install()\n    os.kill(os.getpid(), signal.SIGHUP)\n"
        "with interrupts.Deferred():\n    os.kill(os.getpid(), signal.SIGHUP)\nprint('done')"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_deferred_signal_takes_effect_once_and_leaves_the_handlers_as_they_were(number):
    seen = []
    before = signal.signal(number, lambda *_: seen.append(1))
    try:
        with interrupts.Deferred():
            signal.raise_signal(number)
            signal.raise_signal(number)
            assert seen == []
        assert seen == [1]
        signal.raise_signal(number)
        assert seen == [1, 1]
    finally:
        signal.signal(number, before)


def writing(interrupt_amid=lambda: None, interrupt_after=lambda: None):
    """A program that writes a table, and gets a signal amid that, or later."""

    def main(argv):
        with cli.stage(cli.Parser(SCRIPT, ""), argv) as stage:
            with stage.writing() as transaction:
                transaction.add_table("executed_edges", edges())
                interrupt_amid()
            interrupt_after()
        return 0

    return main


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("moment", "word"),
    [
        ({"interrupt_amid": interrupt}, "nothing was replaced"),
        ({"interrupt_after": interrupt}, "its files are in place"),
    ],
)
def test_an_interrupt_says_whether_the_files_are_in_place(tmp_path, moment, word):
    done = run_program(SCRIPT, writing(**moment), "--out", tmp_path)
    assert (done.returncode, done.stderr) == (130, f"{SCRIPT}: interrupted; {word}\n")
    assert (tmp_path / "executed_edges.csv").exists() == (word == "its files are in place")


def test_a_signal_amid_the_commit_lets_it_end_and_says_so(tmp_path, monkeypatch):
    done = Path.replace

    def interrupting(self, target):
        interrupt()
        return done(self, target)

    monkeypatch.setattr(Path, "replace", interrupting)
    ran = run_program(SCRIPT, writing(), "--out", tmp_path)
    assert (ran.returncode, ran.stderr) == (130, f"{SCRIPT}: interrupted; its files are in place\n")
    assert (tmp_path / "executed_edges.meta.json").exists()


def test_a_signal_after_the_stage_still_says_that_its_files_are_in_place(tmp_path, monkeypatch):
    """Here, while the limit of the memory is lifted."""

    @contextlib.contextmanager
    def interrupting():
        yield
        interrupt()

    monkeypatch.setattr(streams, "bounded_memory", interrupting)
    ran = run_program(SCRIPT, writing(), "--out", tmp_path)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (130, f"{SCRIPT}: interrupted; its files are in place")


def test_a_failure_that_a_signal_caused_is_an_interruption(tmp_path, monkeypatch):
    """As where a descriptor is closed twice, because the signal came amid its first close."""

    def main(argv):
        monkeypatch.setattr(interrupts, "_came", [signal.SIGHUP])
        raise OSError(9, "Bad file descriptor")

    done = run_program(SCRIPT, main, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (130, f"{SCRIPT}: interrupted; nothing was replaced\n")


def test_a_package_that_a_signal_interrupts_amid_its_import_is_not_missing(tmp_path):
    """pybind11 turns whatever is raised while it makes a module into an ImportError."""

    def main(argv):
        try:
            raise ImportError("initialization failed") from KeyboardInterrupt()
        except ImportError as error:
            raise PipelineError("mlperf_loadgen", "is not installed", "install it") from error

    done = run_program(SCRIPT, main, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (130, f"{SCRIPT}: interrupted; nothing was replaced\n")


AMID_THE_END = """
import os, signal
from common import cli
from common.process import interrupts
install = interrupts._install
def install_and_interrupt(handler):
    install(handler)
    if handler is not interrupts._raise:
        interrupts._install = install
        signal.signal({number}, interrupts._raise)  # as long as only the others end the process
        os.kill(os.getpid(), {number})
interrupts._install = install_and_interrupt
cli.run(lambda argv: {code})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("code", [0, 3])
def test_a_signal_amid_the_change_of_handlers_at_the_end_keeps_the_exit_code(number, code):
    program = AMID_THE_END.format(number=int(number), code=code)
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_an_object_is_finalized_still_interrupts(number):
    """Python prints and drops what a finalizer raises."""
    code = f"""
import os, sys, time
from common.process import interrupts
class Finalized:
    def __del__(self):
        os.kill(os.getpid(), {int(number)})
        time.sleep(0)
interrupts.raise_interrupt()
try:
    del [Finalized()][0]
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(7)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("code", [0, 130])
def test_a_signal_amid_the_shutdown_of_the_interpreter_keeps_the_exit_code(number, code):
    """Python drops its handlers before it destroys the modules, whose last object sends the signal."""
    program = (
        "import os, sys\nfrom common.process import interrupts\ninterrupts.end_at_once()\n"
        f"class Last:\n    def __del__(self, kill=os.kill, me=os.getpid()):\n        kill(me, {int(number)})\n"
        f"last = Last()\ninterrupts.end_at_once({code})\nsys.exit({code})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_host_without_a_thread_left_still_runs_a_program(monkeypatch):
    """Found by the injection campaign: clone3 fails with EAGAIN."""

    def refused(*_):
        raise RuntimeError("can't start new thread")

    probe = signal.getsignal(interrupts.PROBE)
    monkeypatch.setattr("_thread.start_new_thread", refused)
    try:
        interrupts.hear_signals()
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(interrupts.PROBE, probe)
