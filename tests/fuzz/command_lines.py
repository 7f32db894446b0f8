"""Every flag of every program with each kind of wrong value: the generated form of what somebody tries by hand.

A case is a flag and a value. Their order follows from a fixed seed, so the first cases are a sample of all.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from tests.fuzz.configurations import GOOD, SLOW, WORKLOAD, is_long
from tests.fuzz.pipeline import build_tables, in_child, must
from tests.fuzz.programs import SCRIPTS, module_of
from tests.fuzz.trial import Trial

UNREADABLE = "/proc/self/mem"  # also for the superuser: it opens, and no byte of it can be read
VALUES = {
    "wrong type": "x1",
    "empty": "",
    "negative": "-1",
    "zero": "0",
    "not a number": "nan",
    "infinite": "1e999",
    "huge": "9" * 40,
    "long": "x" * 5000,
    "a folder": "folder",
    "unreadable": UNREADABLE,
    "missing": "absent/file",
    "a link to itself": "loop",
    "of another kind": "case.onnx",
    "an assignment of nothing": "batch=",
    "a wrong assignment": "input=folder",
}


class CommandLines:
    """The campaign.

    Args:
        scripts: whose flags are tried.
    """

    name = "command-lines"

    def __init__(self, scripts: tuple[str, ...] = tuple(SCRIPTS)) -> None:
        """List the cases."""
        self.cases = [
            (script, flag, kind)
            for script in scripts
            for flag in _flags(script)
            for kind, value in VALUES.items()
            if not (SLOW.match(flag) and is_long(value))
        ]
        random.Random(0).shuffle(self.cases)

    def prepare(self, folder: Path, unit: float) -> None:
        """Run all stages once."""
        self.source = folder / WORKLOAD
        in_child(build_tables, folder, (WORKLOAD,))
        os.chdir(self.source)
        in_child(must, "17_record_run.py", *GOOD["17_record_run.py"])

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Give one flag one wrong value, after those that a good command line has."""
        script, flag, kind = self.cases[trial.case % len(self.cases)]
        hidden = shutil.ignore_patterns(".*", "plots", "ort_trace*")
        shutil.copytree(self.source, trial.folder, dirs_exist_ok=True, ignore=hidden)
        (trial.folder / "folder").mkdir()
        (trial.folder / "loop").symlink_to("loop")
        trial.tell(kind)
        trial.run(script, *GOOD[script], f"{flag}={VALUES[kind]}")


def _flags(script: str) -> list[str]:
    """The flags of a program that take a value."""
    actions = module_of(script).arguments()._actions
    return [action.option_strings[-1] for action in actions if action.option_strings and action.nargs != 0]
