"""A fault at every point of a tiny run of every stage; see :mod:`tests.fuzz.faults`.

A case is a point: a stage, a kind of fault and a number. All points are counted in one run of each stage, and come in
an order that a fixed seed gives. So the first cases are a sample of all, and as many cases as points are all of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

from common.artifacts.journal import JOURNAL, STAGING
from tests.fuzz.configurations import GOOD, WORKLOAD
from tests.fuzz.faults import ERRORS, FAILING, FATAL, SIGNALS, STRACE, Fault, Outcome, run_with
from tests.fuzz.oracle import DONE, INTERRUPTED, digests, faults_of, leftovers, table_faults, unfinished
from tests.fuzz.pipeline import build_tables, in_child
from tests.fuzz.programs import SCRIPTS, run_here
from tests.fuzz.trial import NAMED, Trial

MEASURING = ("00", "01", "10", "14", "15", "18", "19", "20", "21", "22")
SLOW = ("00_host_ceilings.py",)  # tens of seconds of processor time: points are few
FEW = 12
MOST_OF_A_CALL = 400  # points of one system call of one stage
ALLOCATIONS = 300  # points of one stage
MOST_ALLOCATED = 3_000_000
DENIED = ("memory: too little is free", "cannot be imported", "the system denies it")  # what has no path
CPU_UNITS = 800


class Injection:
    """The campaign."""

    name = "injection"

    def __init__(self, scripts: tuple[str, ...] = tuple(SCRIPTS), kinds: tuple[str, ...] = ()) -> None:
        """Take the stages, and the kinds of faults; empty: all."""
        self.scripts, self.kinds = scripts, kinds

    def prepare(self, folder: Path, unit: float) -> None:
        """Run all stages once, keep what they import, and count their points."""
        self.source = folder / WORKLOAD
        in_child(build_tables, folder, (WORKLOAD,))
        os.chdir(self.source)
        in_child(_record)
        here = folder / "warm"
        self.points: list[tuple[str, Fault]] = []
        for script in self.scripts:
            shutil.copytree(self.source, here, ignore=_hidden(script))
            os.chdir(here)
            is_computed = script[:2] not in MEASURING
            if is_computed:  # a session would leave threads, and the forks have none
                run_here(script, *GOOD[script])
            # Whoever is traced while it measures measures the tracer, and a trace of the scheduler never ends.
            traces = is_computed and bool(STRACE)
            counted = run_with(None, CPU_UNITS * unit, script, *GOOD[script], counts_system_calls=traces)
            self.points += [(script, fault) for fault in _points(script, counted, self.kinds)]
            os.chdir(folder)
            shutil.rmtree(here)
        random.Random(0).shuffle(self.points)
        print(f"injection: {len(self.points)} points of {len(self.scripts)} stages", flush=True)

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Let a stage meet its fault, and then run it again without one."""
        script, fault = self.points[trial.case % len(self.points)]
        shutil.copytree(self.source, trial.folder, dirs_exist_ok=True, ignore=_hidden(script))
        command = (script, *GOOD[script])
        trial.tell(f"{' '.join(command)} meets {fault}")
        before = digests(trial.out)
        outcome = run_with(fault, CPU_UNITS * trial.unit, *command)
        _judge(trial, script, fault, outcome, before)
        if digests(trial.out) == before and not leftovers(trial.out):
            return  # the next run begins as this one did
        again = run_with(None, CPU_UNITS * trial.unit, *command)
        if again.ended is None or again.ended.code != DONE:
            text = again.ended.err + again.ended.trace if again.ended else f"status {again.status}"
            trial.fail("next run", f"{script}: fails after {fault.kind} {fault.name}", text)
        elif left := leftovers(trial.out):
            trial.fail("leftovers", f"{script}: after the next run", str(left))


def _hidden(script: str):
    return shutil.ignore_patterns(".*", *(() if script[:2] in ("01", "09", "11", "17") else ("ort_trace*",)))


def _record() -> None:
    if run_here("17_record_run.py", *GOOD["17_record_run.py"]).code:
        raise RuntimeError("17 records nothing")


def _points(script: str, counted: Outcome, kinds: tuple[str, ...]) -> list[Fault]:
    """Every point of a stage; of what it does very often, a sample with a fixed seed."""
    rng, counts = random.Random(script), counted.counts
    most = FEW if script in SLOW else MOST_OF_A_CALL

    def sample(count: int, size: int = most) -> list[int]:
        return list(range(1, count + 1)) if count <= size else sorted(rng.sample(range(1, count + 1), size))

    allocated = [round(10 * (MOST_ALLOCATED / 10) ** rng.random()) for _ in range(min(most, ALLOCATIONS))]
    points = [Fault("import", number, "ImportError") for number in sample(counts["import"])]
    for number in sample(counts["call"]):
        points += [Fault("call", number, rng.choice(ERRORS)), Fault("signal at call", number, rng.choice(SIGNALS))]
    points += [Fault("allocation", number, "MemoryError") for number in allocated]
    for name in sorted(counts.keys() - {"call", "import"}):
        for number in sample(counts[name]):
            points.append(Fault("signal at system call", number, rng.choice(SIGNALS), name))
            if name in FAILING:
                points.append(Fault("system call", number, rng.choice(FAILING[name]), name))
    return [point for point in points if not kinds or point.kind in kinds]


def _judge(trial: Trial, script: str, fault: Fault, outcome: Outcome, before: dict[str, str]) -> None:
    """A stage ends by itself, in a documented way, with one line; its tables are all old or all new."""
    ended, where = outcome.ended, f"{script}: {fault.kind} {fault.name}"
    if outcome.status < 0:
        kind = "hang" if outcome.status == -signal.SIGPROF else "crash"
        trial.fail(kind, f"{where}: {signal.Signals(-outcome.status).name}", "")
        return
    if ended is None:
        if outcome.status not in (FATAL, INTERRUPTED, DONE):  # without a word: it had begun to end
            trial.fail("exit code", f"{where}: {outcome.status}", "")
        if outcome.status != FATAL:  # else the harness itself met the fault
            trial.faults += unfinished(trial.out, script)
        return
    if fault.kind == "allocation" and ended.site.startswith("SystemError"):
        return  # CPython or numpy lost the exception: a defect of theirs
    trial.faults += faults_of(ended, (*NAMED, *DENIED, "runs.sqlite"))
    if fault.is_signal and ended.code not in (DONE, INTERRUPTED, None):
        trial.fail("exit code", f"{where}: {ended.code} after a signal", ended.err)
    if ended.err.count("interrupted; ") > 1 or (ended.code == INTERRUPTED and not fault.is_signal):
        trial.fail("error lines", f"{where}: {ended.code}", ended.err)
    if "the tables are complete" in ended.err or (trial.out / STAGING / JOURNAL).exists():
        return  # the next stage on the folder completes what a journal lists
    if ended.code in (DONE, None) or "in place" not in ended.err:
        trial.faults += [
            found for found in table_faults(trial.out, ended.code, before, script) if found.kind != "leftovers"
        ]
