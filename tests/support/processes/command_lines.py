"""Programs of this project, called by their command lines within the process of the tests.

A process of its own takes a second of imports. It is worth that only where the process is the subject: its streams,
its signals, what it imports.
"""

import contextlib
import importlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from common import cli
from tests.support.paths import ROOT

Main = Callable[[Sequence[str] | None], int]


def run_program(name: str, main: Main, *flags: object, cwd: Path = ROOT) -> CompletedProcess[str]:
    """Run a main function as ``common.cli.run`` runs it in a process of its own.

    Args:
        name: what the program is called in its messages.
        main: takes the flags from ``sys.argv``.
        flags: flags and their values.
        cwd: the current folder meanwhile.

    Returns:
        Exit code and what it printed on each stream.
    """
    words = [name, *map(str, flags)]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd), pytest.raises(SystemExit) as exit_of:
        patch.setattr("sys.argv", words)
        for function in (
            "common.process.interrupts._install",
            "common.process.interrupts.hear_signals",
            "common.cli.streams.on_crash",
            "gc.freeze",
            "gc.set_threshold",
        ):  # they change the process for good
            patch.setattr(function, lambda *_: None)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.run(main)
    return CompletedProcess(words, int(exit_of.value.code or 0), out.getvalue(), err.getvalue())


def run_stage(script: str, *flags: object, cwd: Path = ROOT) -> CompletedProcess[str]:
    """Run a numbered script; see :func:`run_program`."""
    return run_program(script, importlib.import_module(script.removesuffix(".py")).main, *flags, cwd=cwd)


def width(printed: str) -> int:
    """Return the columns of the widest line; a command that names a file of the user's is as wide as it must be."""
    return max(len(line) for line in printed.splitlines() if not line.startswith("    python "))
