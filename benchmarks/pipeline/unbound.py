"""Measure what unbound dimensions cost 02: the same model with and without ``--dim``, in turns.

Figures are of whole processes, imports included: the shortest processor time and the largest peak of the repetitions.
Processor time, because another program's load lengthens a wall time. Without ``--model`` the model is a synthetic
transformer of 3,200 nodes with an unbound batch and sequence.

    nodes  unbound s  bound s  ratio  unbound MB  bound MB
     3204       2.05     1.19   1.72         147       128  within 2.0 and 160 MB
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pipeline.scaling import GIB, MEGABYTE, Case, stage
from benchmarks.process import CommandRun, run, shortest
from common.view.text import text_table

LARGEST_RATIO = 2.0  # processor time of the unbound to that of the bound run
LARGEST_PEAK_MB = 160.0
NODES = 3_200
BINDINGS = ("batch=1", "sequence=11")
TIMEOUT_S = 120.0


def compare(model: Path, bindings: Sequence[str], folder: Path, repetitions: int) -> tuple[CommandRun, CommandRun]:
    """Return the unbound and the bound run of 02; both take turns, so that a busy machine slows both."""
    dims = [word for binding in bindings for word in ("--dim", binding)]
    commands = [[*stage("02", model, folder), *flags] for flags in ([], dims)]
    turns = [
        [run(command, timeout_s=TIMEOUT_S, memory_bytes=16 * GIB) for command in commands] for _ in range(repetitions)
    ]
    unbound, bound = ([*runs] for runs in zip(*turns, strict=True))
    for failed in (turn for turn in (*unbound, *bound) if turn.failure):
        raise SystemExit(f"02 on {model} fails: {failed.failure}")
    return shortest(unbound), shortest(bound)


def is_kept(unbound: CommandRun, bound: CommandRun) -> bool:
    ratio = unbound.processor_seconds / bound.processor_seconds
    return ratio <= LARGEST_RATIO and unbound.peak_bytes <= LARGEST_PEAK_MB * MEGABYTE


def report(node_count: int, unbound: CommandRun, bound: CommandRun) -> str:
    verdict = "within" if is_kept(unbound, bound) else "above"
    times = [f"{side.processor_seconds:.2f}" for side in (unbound, bound)]
    peaks = [f"{side.peak_bytes / MEGABYTE:.0f}" for side in (unbound, bound)]
    ratio = f"{unbound.processor_seconds / bound.processor_seconds:.2f}"
    header = ("nodes", "unbound s", "bound s", "ratio", "unbound MB", "bound MB", "")
    limits = f"{verdict} {LARGEST_RATIO} and {LARGEST_PEAK_MB:.0f} MB"
    return text_table(header, [[str(node_count), *times, ratio, *peaks, limits]], left=(6,))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 1 where the unbound run is above a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, metavar="FILE", help="a model with unbound dimensions")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="its bindings (repeatable)")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="runs of each kind (default: 5)")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model, bindings = given.model, given.dim
        if model is None:
            model, _ = Case("unbound", NODES).build(folder)
            bindings = BINDINGS
        unbound, bound = compare(model.resolve(), bindings, folder / "out", max(1, given.repetitions))
        with (folder / "out" / "op_metrics.csv").open(newline="") as file:
            node_count = sum(1 for _ in csv.DictReader(file))
    print(report(node_count, unbound, bound))
    return int(not is_kept(unbound, bound))


if __name__ == "__main__":
    sys.exit(main())
