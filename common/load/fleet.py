"""Load tests of many models, distributed over workers; one at a time on each host.

A call measures one model on the worker's host, and names that host. However many workers a host has, the others wait
for a lock, since two loads on the same processors would measure each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import cast

from common.load.best_configuration import SearchSettings, find_best
from common.load.generator.harness import prepare
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand
from common.load.results.load_figures import steady, summary
from common.load.results.thresholds import USUAL_THRESHOLDS, LoadThresholds
from common.load.search.optimum import SearchTask, chosen
from common.load.service.concurrency import USUAL
from common.load.service.served_model import ServedModel, SessionShape, served_model
from common.messages.errors import PipelineError
from common.onnx_graph.reading.scan import scan
from common.process.host_identity import host_identity
from common.runtime.sessions.threads import usable_threads
from common.table_rows import LoadFleetRow

Fields = dict[str, object]  # of a row of load_fleet
FIGURES = (  # of load_summary, which a row has too
    *("validity", "validity_reason", "sent_count", "completed_count", "rejected_count", "failed_count"),
    *("cancelled_count", "error_share", "goodput_requests_per_s"),
    *("offered_requests_per_s", "answered_requests_per_s", "utilization_share"),
    *(f"request_{name}{end}_us" for name in ("p50", "p99") for end in ("", "_low", "_high")),
)
SETUP = ("provider", "session_count", "threads", "replica_count", "batch_max_count", "batch_wait_us")
SHARING = tuple(USUAL.columns)
HOST = ("hostname", "cpu_model", "processor_count", "runtime_version")
COLUMNS = ("model_file", *HOST, *SETUP, *SHARING, *FIGURES)


@dataclass(frozen=True, slots=True)
class Bound:
    """The aim of a search before the run."""

    p99_us: float
    budget_s: float
    batch_max: int


@dataclass(frozen=True, slots=True)
class ModelTask:
    """One model to measure."""

    path: Path
    # Content of the file and of those beside it with its weights, by their places in its folder, for a worker that may
    # not have them; empty: the worker reads the file.
    sent: Mapping[str, bytes]
    dimensions: Mapping[str, int]
    configured: Mapping[str, int]  # sizes of lower precedence
    demand: Demand
    policy: BatchPolicy
    shape: SessionShape  # of at most as many threads as the host has; 0: an equal share of them for each session
    thresholds: LoadThresholds = USUAL_THRESHOLDS
    bound: Bound | None = None  # what to search first; None to run as asked

    def measured(self) -> LoadFleetRow:
        """Measure the model on this host, alone; where it cannot be served, the run is invalid for that reason.

        Raises:
            KeyboardInterrupt: a signal ended it.
        """
        with _alone_on_this_host(), self._file() as path:
            try:
                figures = self._measured(path)
            except PipelineError as error:
                figures = {**self._asked(), "validity": "invalid", "validity_reason": error.problem}
        host = host_identity()
        values = (host["hostname"], host["cpu_model"], usable_threads(None), version("onnxruntime"))
        row = {"model_file": str(self.path), **dict(zip(HOST, values, strict=True)), **figures}
        return cast("LoadFleetRow", {name: row.get(name) for name in COLUMNS})

    @contextlib.contextmanager
    def _file(self) -> Iterator[Path]:
        if not self.sent:
            yield self.path
            return
        with tempfile.TemporaryDirectory() as folder:
            for place, content in self.sent.items():
                file = Path(folder, place)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            yield Path(folder, self.path.name)

    def served(self, path: Path) -> ServedModel:
        """Return the model of a file with the task's dimensions and random inputs.

        Raises:
            PipelineError: it cannot be served.
        """
        return served_model(path, self.dimensions, self.configured, {}, seed=self.demand.seed)

    def _measured(self, path: Path) -> Fields:
        model = self.served(path)
        task = self._best(model, self.bound) if self.bound else self
        shape = task._with_threads(usable_threads(task._threads))
        harness = prepare(model, shape, task.demand, task.demand.schedule(), task.policy, task.thresholds)
        test = harness.load()
        if test.record.is_interrupted:
            raise KeyboardInterrupt
        return {**summary(test, steady(test.record)), **harness.figures}

    def _asked(self) -> Fields:
        """Return the figures of a model that got no request."""
        return {
            **self._with_threads(self._threads).figures,
            "batch_max_count": self.policy.most,
            "batch_wait_us": self.policy.wait_ns / 1e3,
            **dict.fromkeys((name for name in FIGURES if name.endswith("_count")), 0),
            **dict.fromkeys(("error_share", "answered_requests_per_s", "goodput_requests_per_s"), 0.0),
        }

    @property
    def _threads(self) -> int:
        return self.shape.options.threads or max(1, usable_threads(None) // self.shape.session_count)

    def _with_threads(self, count: int) -> SessionShape:
        return replace(self.shape, options=replace(self.shape.options, threads=count))

    def _best(self, model: ServedModel, bound: Bound) -> ModelTask:
        """Search the best configuration on this host; return the task with it.

        Raises:
            KeyboardInterrupt: a signal ended the search.
        """
        own = self.shape
        processors = usable_threads(own.options.threads or None)
        aim, host = (bound.p99_us, bound.budget_s, bound.batch_max), (processors, None, self.demand.seed)
        task = SearchTask(*aim, *host, (own.concurrency,), max_error_share=self.thresholds.max_error_share)
        settings = SearchSettings(task, own.options, own.replicas)
        optimum, _ = find_best(model, settings)
        if optimum.is_interrupted:
            raise KeyboardInterrupt
        setup, rate_hz = chosen(optimum)
        return replace(
            self,
            demand=replace(self.demand, rate_hz=rate_hz),
            policy=replace(self.policy, most=setup.batch_max, wait_ns=round(1e9 * setup.wait_s)),
            shape=settings.shape(*setup.shape),
        )


@contextlib.contextmanager
def _alone_on_this_host() -> Iterator[None]:
    """Wait until no other task of this user is measured on this host."""
    path = Path(tempfile.gettempdir(), f"onnx-profile-{os.getuid()}.lock")
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield


def tasks_of(
    paths: Sequence[Path], configured: Sequence[Mapping[str, int]], task: ModelTask, *, is_sent: bool
) -> list[ModelTask]:
    """Return a task like this one for each model.

    Args:
        configured: sizes of dynamic dimensions of each.
        is_sent: send the files to workers, which may be on other hosts.

    Raises:
        PipelineError: a file cannot be read.
    """
    return [
        replace(task, path=path, sent=_files_of(path) if is_sent else {}, configured=own)
        for path, own in zip(paths, configured, strict=True)
    ]


def fleet_rows(
    paths: Sequence[Path], results: Generator[tuple[int, LoadFleetRow]], progress: Callable[[float, float], None]
) -> tuple[list[LoadFleetRow], list[str]]:
    """Return a row per model in their order, and what is missing: those before a signal or a lost worker are kept.

    Args:
        results: the place of each model and its row, as they come.
        progress: called with the number of measured models and of all.

    Raises:
        PipelineError: the workers were lost before any model was measured.
        KeyboardInterrupt: a signal came as early.
    """
    rows, reason = dict[int, "LoadFleetRow"](), ""
    try:
        with contextlib.closing(results):
            for place, row in results:
                rows[place] = row
                progress(len(rows), len(paths))
    except (KeyboardInterrupt, PipelineError) as error:
        if not rows:
            raise
        reason = str(error) or "a signal ended the load tests"
    lacks = [f"{reason}: {len(rows)} of {len(paths)} models were measured"] if reason else []
    return [rows[place] for place in sorted(rows)], lacks


def broken_by(rows: Sequence[LoadFleetRow], thresholds: LoadThresholds) -> list[str]:
    return [f"{row['model_file']}: {problem}" for row in rows for problem in thresholds.broken(row)]


def _files_of(path: Path) -> dict[str, bytes]:
    """Return the content of a model's file, and of the files in its folder that its weights are in, by their places.

    One that is missing or outside of the folder is left out, as are those of a file that is no model: who loads
    it says what is wrong.
    """
    contents = {path.name: _content(path)}
    with contextlib.suppress(PipelineError):
        for file in (one for one in scan(path).files if one.is_relative_to(path.parent) and one.is_file()):
            place = file.relative_to(path.parent)
            if file != path and ".." not in place.parts:
                contents[str(place)] = _content(file)
    return contents


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})") from error
