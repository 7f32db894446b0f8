"""Change the rooms that decide at one place at a time, run their tests, and print which changes nobody noticed.

    python -m tests.mutation --minutes 5                  a sample of all rooms; the same for the same seed
    python -m tests.mutation --room comparison --all      every mutant of one room

mutmut makes the mutants (``>`` to ``>=``, ``and`` to ``or``, a number to the next, an argument to ``None`` …). Its own
runner copies the project and tries all of them, which takes hours here. So each mutant runs in a process that is forked
from this one, in which the packages are imported already, and a sample is drawn. Texts are not mutated: they decide
nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import importlib.abc
import importlib.util
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import libcst
import pytest
from mutmut.mutation.file_mutation import Mutation, create_mutations, deep_replace

from tests.support.paths import ROOT

# Files that decide, and the tests that hold them.
ROOMS = {
    "comparison": (("common/comparison/*.py",), ("tests/comparison",)),
    "verdict": (("common/fpga/speedup/*.py",), ("tests/fpga/speedup", "tests/fpga/planning")),
    "offload": (("common/fpga/offload/*.py",), ("tests/fpga/offload",)),
    "load": (
        ("common/load/results/validity.py", "common/load/search/*.py", "common/load/best_configuration.py"),
        ("tests/load/results", "tests/load/search", "tests/load/test_best_configuration.py"),
    ),
}
WARM = ("numpy", "pandas", "onnx", "pandera", "hypothesis", "scipy.stats")  # none of them starts a thread
LEAST_S, TIMES = 10.0, 4.0  # processor time of a mutant: the tests' own, so many times, and at least this
CAUGHT, SURVIVED, ENDLESS = "caught", "survived", "endless"


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    path: Path
    tree: libcst.Module
    mutation: Mutation

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)

    @cached_property
    def code(self) -> str:
        return deep_replace(self.tree, self.mutation.original_node, self.mutation.mutated_node).code

    def __str__(self) -> str:
        _, _, place, *lines = difflib.unified_diff(
            self.tree.code.splitlines(), self.code.splitlines(), n=0, lineterm=""
        )
        first_line = place.split()[1].lstrip("-").split(",")[0]  # of "@@ -12,3 +12 @@"
        changed = [line[1:].strip() for line in lines if line[:1] in "+-"]
        return f"{self.path.relative_to(ROOT)}:{first_line}: {'  ->  '.join(changed)}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file, but those of its texts."""
    module, mutations, *_ = create_mutations(str(path), path.read_text(encoding="utf-8"))
    for mutation in mutations:
        if not isinstance(mutation.original_node, libcst.BaseString):
            yield Mutant(path, module, mutation)


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Gives a mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, fullname, path=None, target=None):
        """Claim the mutant's module."""
        if fullname != self.mutant.module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self.mutant.path))

    def get_source(self, fullname):
        """Return the changed code."""
        return self.mutant.code


def outcome(mutant: Mutant | None, tests: Sequence[str], limit_s: float) -> tuple[str, float]:
    """Run tests against a mutant, or against no mutant, in a process of its own; return how it ended and its time."""
    start_s = _children_s()
    child = os.fork()
    if not child:
        _run_tests(mutant, tests, limit_s)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    ended = SURVIVED if code == 0 else ENDLESS if code == -signal.SIGXCPU else CAUGHT
    return ended, _children_s() - start_s


def _run_tests(mutant: Mutant | None, tests: Sequence[str], limit_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 30))
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        code = 1
        with contextlib.suppress(BaseException):
            if mutant is not None:
                sys.meta_path.insert(0, Mutated(mutant))
            code = int(pytest.main(["-q", "-x", "-n0", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]))
        os._exit(code)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--room", action="append", choices=ROOMS, help="repeatable (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of processor time, for all rooms (default: 10)")
    parser.add_argument("--all", action="store_true", help="try every mutant, however long it takes")
    return parser


Tried = dict[str, list[Mutant]]  # by how they ended
REPORT_EACH = 50  # mutants


def share_of(tried: Tried) -> str:
    """Return how many of the tried mutants were caught; endless ones are."""
    caught, count = len(tried[CAUGHT]) + len(tried[ENDLESS]), sum(map(len, tried.values()))
    return f"{count:>8}{caught:>8}{f'{caught / count:.0%}' if count else '':>8}"


def try_room(name: str, given: argparse.Namespace, budget_s: float, rooms: dict[str, tuple[int, Tried]]) -> None:
    """Enter how many mutants a room has, and those that were tried; what is entered stays if a signal ends the room."""
    patterns, tests = ROOMS[name]
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.name != "__init__.py")
    mutants = [mutant for path in files for mutant in mutants_of(path)]
    ended, used_s = outcome(None, tests, 600)
    if ended != SURVIVED:
        sys.exit(f"{name}: its tests fail without a mutant; run: python -m pytest {' '.join(tests)}")
    limit_s = max(LEAST_S, TIMES * used_s)
    tried: Tried = {CAUGHT: [], SURVIVED: [], ENDLESS: []}
    rooms[name] = len(mutants), tried
    for mutant in random.Random(given.seed).sample(mutants, len(mutants)):
        if used_s > budget_s and not given.all:
            break
        ended, time_s = outcome(mutant, tests, limit_s)
        used_s += time_s
        tried[ended].append(mutant)
        if ended == SURVIVED:
            print(f"survived  {mutant}", flush=True)
        if sum(map(len, tried.values())) % REPORT_EACH == 0:
            print(f"{name:<12}{len(mutants):>9}{share_of(tried)}  so far", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Try the mutants, and print the share of each room that the tests catch, also if a signal ends the trials."""
    given = arguments().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name in WARM:
        importlib.import_module(name)
    start_s = time.process_time()
    chosen, rooms = given.room or [*ROOMS], dict[str, tuple[int, Tried]]()
    with contextlib.suppress(KeyboardInterrupt):
        for name in chosen:
            try_room(name, given, 60 * given.minutes / len(chosen), rooms)
    lines = [f"{name:<12}{count:>9}{share_of(tried)}" for name, (count, tried) in rooms.items()]
    print(f"{'room':<12}{'mutants':>9}{'tried':>8}{'caught':>8}{'share':>8}", *lines, sep="\n")
    used_s = time.process_time() - start_s + _children_s()
    print(f"seed {given.seed}, {used_s / 60:.1f} minutes of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
