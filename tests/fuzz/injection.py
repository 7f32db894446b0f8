"""A fault at every point of a tiny run of every stage; see :mod:`tests.fuzz.faults`.

A case is a point: a stage, a kind of fault and a number. One run of each stage counts all points. Points of one site do
the same: they come from the same lines of the project, or are the same system call on the same file. The first, the
last and one other point of each site come before all others, and each point of a call that changes files is a site of
its own. Within both parts the seed gives the order. So the first cases are a uniform sample, and each seed has its own.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.artifacts.journal import JOURNAL, STAGING
from tests.fuzz.configurations import GOOD, WORKLOAD
from tests.fuzz.endpoint import started
from tests.fuzz.faults import ERRORS, FAILING, FATAL, SIGNALS, STRACE, Fault, Outcome, run_with
from tests.fuzz.oracle import (
    DONE,
    FAILED,
    INTERRUPTED,
    digests,
    faults_of,
    leftovers,
    table_faults,
    unfinished,
)
from tests.fuzz.oracle import Fault as Found
from tests.fuzz.pipeline import build_tables, in_child, must
from tests.fuzz.programs import SCRIPTS, run_here
from tests.fuzz.trial import NAMED, Trial

MEASURING = ("00", "01", "10", "12", "14", "15", "18", "19", "20", "21", "22", "26", "27")
ENDLESS = "01_profile_onnx.py"  # under strace: each read of the scheduler's trace is an event in it
ENDPOINT = "25_load_endpoint.py"
GENERATED, ITS_READER = "26_generation.py", "31_decode_plan.py"  # their model has a cache, unlike that of the others
CHANGING = frozenset(  # system calls of which each one matters
    ("write", "pwrite64", "rename", "fsync", "fdatasync", "mkdir", "unlink", "unlinkat", "rmdir", "flock", "ftruncate")
)
ALLOCATIONS = 300  # points of one stage: the first of them at each size of its number
MOST_ALLOCATED = 3_000_000
# What has no path.
DENIED = ("memory: too little is free", "cannot be imported", "is not installed", "the system denies it")
LOST = ("os.PathLike object, not PosixPath", "Exception ignored in")  # what is said of an exception that is lost
CRASHED = re.compile(r"\S+: error: this host: native code crashed \(SIG[A-Z]+\), .*\n")
CPU_UNITS = 800


class Injection:
    """The campaign."""

    name = "injection"

    def __init__(self, scripts: tuple[str, ...] = tuple(SCRIPTS), kinds: tuple[str, ...] = (), seed: int = 0) -> None:
        """Take the stages, the kinds of faults (empty: all), and the seed of the order."""
        self.scripts, self.kinds, self.seed = scripts, kinds, seed

    def prepare(self, folder: Path, unit: float) -> None:
        """Run all stages once, keep what they import, and count their points."""
        self.source = folder / WORKLOAD
        self.flags = {**GOOD, ENDPOINT: _at(started())} if ENDPOINT in self.scripts else GOOD
        in_child(build_tables, folder, (WORKLOAD,))
        os.chdir(self.source)
        in_child(_record)
        in_child(must, GENERATED, *GOOD[GENERATED])
        here = folder / "warm"
        self.points: list[tuple[str, Fault]] = []
        for script in self.scripts:
            shutil.copytree(self.source, here, ignore=_hidden(script))
            os.chdir(here)
            if script[:2] not in MEASURING:  # a session would leave threads, and the forks have none
                run_here(script, *self.flags[script])
            traces = bool(STRACE) and script != ENDLESS
            counted = run_with(None, CPU_UNITS * unit, script, *self.flags[script], counts_system_calls=traces)
            self.points += [(script, fault) for fault in _points(script, counted, self.kinds, self.seed)]
            os.chdir(folder)
            shutil.rmtree(here)
        self.points = in_order(self.points, self.seed)
        first = sum(fault.is_first for _, fault in self.points)
        print(f"injection: {first} points stand for all {len(self.points)} of {len(self.scripts)} stages", flush=True)

    def summary(self, first: int, cases: int, failed: int) -> Iterator[str]:
        """Say how many points of each stage were tried, and which share of all can fail at most."""
        tried, every, standing = (
            Counter(script for script, _ in points)
            for points in (
                self.points[first : first + cases],
                self.points,
                [point for point in self.points if point[1].is_first],
            )
        )
        yield f"{'stage':<28}{'points':>9}{'sites':>8}{'tried':>8}"
        for script in self.scripts:
            yield f"{script:<28}{every[script]:>9}{standing[script]:>8}{tried[script]:>8}"
        if first + cases <= standing.total():
            share = most_failing(failed, cases)
            yield f"{failed} of {cases} failed: of {standing.total()} points at most {share:.2%} fail (95 % limit)"

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Let a stage meet its fault, and then run it again without one."""
        script, fault = self.points[trial.case % len(self.points)]
        shutil.copytree(self.source, trial.folder, dirs_exist_ok=True, ignore=_hidden(script))
        command = (script, *self.flags[script])
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


def in_order(points: Sequence[tuple[str, Fault]], seed: int) -> list[tuple[str, Fault]]:
    """Return the points that stand for a site, and then the others, each part in an order that the seed gives.

    The place of a point depends on itself alone: a stage that measures has other points each time.
    """
    return sorted(points, key=lambda point: (not point[1].is_first, random.Random(f"{seed} {point}").random()))


def most_failing(failed: int, tried: int) -> float:
    """Return the upper limit at 95 % of a share of which a uniform sample shows some.

    Clopper, Pearson 1934, Biometrika 26(4); with none failed about 3 over the size of the sample (the rule of three).
    """
    from scipy.stats import beta

    return float(beta.ppf(0.95, failed + 1, tried - failed)) if failed < tried else 1.0


def _at(address: str) -> tuple[str, ...]:
    """The flags of a short load at an endpoint."""
    return ("--endpoint", address, "--served-model", "double", "--rate", "50", "--duration", "100ms")


def _hidden(script: str):
    traces = () if script[:2] in ("01", "09", "11", "17") else ("ort_trace*",)
    return shutil.ignore_patterns(".*", *traces, *(() if script == ITS_READER else ("generation*",)))


def _record() -> None:
    if run_here("17_record_run.py", *GOOD["17_record_run.py"]).code:
        raise RuntimeError("17 records nothing")


def _points(script: str, counted: Outcome, kinds: tuple[str, ...], seed: int) -> list[Fault]:
    """Every point of a stage, but a sample of its allocations, which are millions."""
    rng, sites = random.Random(f"{seed} {script}"), counted.sites
    allocated = {round(10 * (MOST_ALLOCATED / 10) ** rng.random()) for _ in range(ALLOCATIONS)}
    points = [Fault("allocation", number, what="MemoryError") for number in sorted(allocated)]
    points += [Fault("import", *place, "ImportError") for place in _places(sites.get("import", ()))]
    for place in _places(sites.get("call", ())):
        points += [Fault("call", *place, rng.choice(ERRORS)), Fault("signal at call", *place, rng.choice(SIGNALS))]
    for name in sorted(sites.keys() - {"call", "import"}):
        for place in _places(sites[name], is_each_first=name in CHANGING):
            points.append(Fault("signal at system call", *place, rng.choice(SIGNALS), name))
            if name in FAILING:
                points.append(Fault("system call", *place, rng.choice(FAILING[name]), name))
    return [point for point in points if not kinds or point.kind in kinds]


def _places(sites: Sequence[str], is_each_first: bool = False) -> Iterator[tuple[int, bool]]:
    """Yield the number of each call, and whether it stands for its site."""
    by_site = defaultdict[str, list[int]](list)
    for number, site in enumerate(sites, 1):
        by_site[site].append(number)
    for numbers in by_site.values():
        first = {numbers[0], random.Random(numbers[0]).choice(numbers), numbers[-1]}
        yield from ((number, is_each_first or number in first) for number in numbers)


def _judge(trial: Trial, script: str, fault: Fault, outcome: Outcome, before: dict[str, str]) -> None:
    """A stage ends by itself, in a documented way, with one line; its tables are all old or all new."""
    ended, where = outcome.ended, f"{script}: {fault.kind} {fault.name}"
    if outcome.status < 0:
        kind = "hang" if outcome.status == -signal.SIGPROF else "crash"
        trial.fail(kind, f"{where}: {signal.Signals(-outcome.status).name}", "")
        return
    if ended is None:
        has_crashed = outcome.status == FAILED and CRASHED.fullmatch(outcome.last_words)
        if outcome.status not in (FATAL, INTERRUPTED, DONE) and not has_crashed:  # without a word: it had begun to end
            trial.fail("exit code", f"{where}: {outcome.status}", outcome.last_words)
        if outcome.status != FATAL:  # else the harness itself met the fault
            trial.faults += unfinished(trial.out, script)
        if has_crashed and "nothing was replaced" in outcome.last_words:
            trial.faults += _whole(table_faults(trial.out, FAILED, before, script))
        return
    lost = any(word in text for word in LOST for text in (ended.trace, ended.err))
    if fault.kind == "allocation" and (lost or ended.site.startswith("SystemError")):
        return  # CPython or numpy lost the exception: a defect of theirs
    if fault.kind == "allocation" and ended.code == FAILED and not ended.err.strip():
        return  # among the first of a process: there is nothing yet that could say it
    trial.faults += faults_of(ended, (*NAMED, *DENIED, "runs.sqlite", "http://"))
    if fault.is_signal and ended.code not in (DONE, INTERRUPTED, None):
        trial.fail("exit code", f"{where}: {ended.code} after a signal", ended.err)
    if ended.err.count("interrupted; ") > 1 or (ended.code == INTERRUPTED and not fault.is_signal):
        trial.fail("error lines", f"{where}: {ended.code}", ended.err)
    if "the tables are complete" in ended.err or (trial.out / STAGING / JOURNAL).exists():
        return  # the next stage on the folder completes what a journal lists
    if ended.code in (DONE, None) or "in place" not in ended.err:
        trial.faults += _whole(table_faults(trial.out, ended.code, before, script))


def _whole(faults: Iterator[Found]) -> list[Found]:
    """Faults of the tables themselves: what a killed stage leaves beside them, the next one drops."""
    return [found for found in faults if found.kind != "leftovers"]
