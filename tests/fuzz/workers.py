"""Workers: forked from a process that has imported everything, each runs a batch of cases after another.

A case that hangs, or that ends its process, costs its worker; the next worker goes on with the next case.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import random
import re
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from tests.fuzz.oracle import Fault
from tests.fuzz.trial import Trial, limit_memory

BATCH = 24
WAITING = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)  # for a processor or a disk, which others may use
ASLEEP_S = 30  # without a tick of CPU time: it waits for what does not come


class Campaign(Protocol):
    """Cases of one kind; ``prepare`` makes what they share, in a folder that later cases only read."""

    name: str

    def prepare(self, folder: Path, unit: float) -> None: ...
    def run(self, rng: random.Random, trial: Trial) -> None: ...


@dataclass(frozen=True)
class Result:
    """One case that was tried."""

    campaign: str
    case: int
    story: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass
class Worker:
    """A forked process and the cases that it has not reported yet."""

    process: int
    pipe: int
    dump: Path
    cases: list[int]
    buffer: bytes = b""
    cpu_s: float = 0.0
    since: float = field(default_factory=time.monotonic)


def shared_memory() -> Path:
    """Where the folders of the cases stand: in memory, because a stage waits until its tables are on the disk."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def run_case(campaign: Campaign, seed: int, case: int, folder: Path, unit: float) -> Result:
    """Run one case in this process; its random numbers follow from seed, campaign and case alone."""
    rng = random.Random(f"{seed}/{campaign.name}/{case}")
    folder.mkdir(parents=True)
    trial = Trial(folder, unit, case)
    campaign.run(rng, trial)
    return Result(campaign.name, case, tuple(trial.story), tuple(trial.faults))


class Pool:
    """The workers of one campaign.

    Args:
        campaign: prepared.
        seed: of all cases.
        folder: for the folders of the cases.
        unit: CPU time of a tiny model.
        count: number of workers.
    """

    def __init__(self, campaign: Campaign, seed: int, folder: Path, unit: float, count: int) -> None:
        """Start nothing yet."""
        self.campaign, self.seed, self.folder, self.unit, self.count = campaign, seed, folder, unit, count

    def results(self, until: Callable[[int], bool], first: int = 0) -> Iterator[Result]:
        """Yield the results of the cases from ``first`` on, in the order in which they end.

        Args:
            until: whether no further batch begins, given the number of the next case.
            first: number of the first case.
        """
        workers: list[Worker] = []
        try:
            yield from self._results(until, first, workers)
        finally:
            for worker in workers:
                _end_family(worker)

    def _results(self, until: Callable[[int], bool], following: int, workers: list[Worker]) -> Iterator[Result]:
        waiting: list[list[int]] = []
        while True:
            while len(workers) < self.count and (waiting or not until(following)):
                cases = waiting.pop() if waiting else list(range(following, following + BATCH))
                following = max(following, cases[-1] + 1)
                workers.append(self._fork(cases))
            if not workers:
                return
            readable, _, _ = select.select([worker.pipe for worker in workers], [], [], 1.0)
            for worker in list(workers):
                if worker.pipe in readable:
                    content = os.read(worker.pipe, 1 << 20)
                    worker.buffer += content
                    yield from self._reported(worker)
                    if not content:
                        workers.remove(worker)
                        yield from self._ended(worker, waiting)
                elif _is_asleep(worker):
                    os.kill(worker.process, signal.SIGPROF)

    def _reported(self, worker: Worker) -> Iterator[Result]:
        while len(worker.buffer) >= 8:
            size = int.from_bytes(worker.buffer[:8], "big")
            if len(worker.buffer) < 8 + size:
                return
            result = pickle.loads(worker.buffer[8 : 8 + size])
            worker.buffer = worker.buffer[8 + size :]
            worker.cases.remove(result.case)
            worker.since = time.monotonic()
            yield result

    def _ended(self, worker: Worker, waiting: list[list[int]]) -> Iterator[Result]:
        """Say which case ended a worker before its time, and leave the rest of its cases to another."""
        os.close(worker.pipe)
        _, status = os.waitpid(worker.process, 0)
        _end_family(worker)
        dump = worker.dump.read_text(errors="replace") if worker.dump.exists() else ""
        worker.dump.unlink(missing_ok=True)
        if not worker.cases:
            return
        case, *rest = worker.cases
        if rest:
            waiting.append(rest)
        number = os.waitstatus_to_exitcode(status)
        kind = "hang" if number == -signal.SIGPROF else "crash"
        what = "" if kind == "hang" else f"{signal.Signals(-number).name if number < 0 else f'exit {number}'} "
        story = self._folder(case).with_suffix(".story")
        told = tuple(story.read_text(errors="replace").splitlines()) if story.exists() else ()
        self._forget(case)
        yield Result(self.campaign.name, case, told, (Fault(kind, what + dumped_site(dump), dump),))

    def _folder(self, case: int) -> Path:
        return self.folder / f"{self.campaign.name}-{case}"

    def _forget(self, case: int) -> None:
        shutil.rmtree(self._folder(case), ignore_errors=True)
        self._folder(case).with_suffix(".story").unlink(missing_ok=True)

    def _fork(self, cases: list[int]) -> Worker:
        reader, writer = os.pipe()
        dump = self.folder / f"dump-{cases[0]}"
        if process := os.fork():
            os.close(writer)
            return Worker(process, reader, dump, list(cases))
        os.close(reader)
        os.setpgid(0, 0)
        try:
            self._work(cases, writer, dump)
            os._exit(0)
        except BaseException:  # a defect of a campaign: show it, and count the case as failed
            import traceback

            dump.write_text(traceback.format_exc())
            os._exit(70)

    def _work(self, cases: list[int], pipe: int, dump: Path) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with dump.open("w") as file:
            faulthandler.enable(file, all_threads=False)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            faulthandler.register(signal.SIGPROF, file, all_threads=False, chain=True)
            limit_memory()
            for case in cases:
                result = run_case(self.campaign, self.seed, case, self._folder(case), self.unit)
                os.chdir(self.folder)
                self._forget(case)
                content = pickle.dumps(result)
                os.write(pipe, len(content).to_bytes(8, "big") + content)


def _is_asleep(worker: Worker) -> bool:
    """Whether a worker and its children have taken no CPU time for long, though none of them waits for a resource.

    A child that ends may take its time out of the sum, so a sum that falls is work, too.
    """
    try:
        process = psutil.Process(worker.process)
        family = [process, *process.children(recursive=True)]
        used = sum(sum(member.cpu_times()[:4]) for member in family)
        if used != worker.cpu_s or any(member.status() in WAITING for member in family):
            worker.cpu_s, worker.since = used, time.monotonic()
    except psutil.NoSuchProcess:
        return False
    return time.monotonic() - worker.since > ASLEEP_S


def _end_family(worker: Worker) -> None:
    """End a worker and what it left running; it leads a process group of its own."""
    try:
        os.killpg(worker.process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def dumped_site(dump: str) -> str:
    """The innermost place of this project in what faulthandler wrote."""
    frames = re.findall(r'File "([^"]*)", line \d+ in (\S+)', dump)
    ours = [frame for frame in frames if "/lib/python" not in frame[0] and "/tests/" not in frame[0]]
    if not ours:
        return "outside"
    file, function = ours[0]
    return f"in {'/'.join(Path(file).parts[-2:])}:{function}"
