"""Ways to load services, and the tables that each leaves: by LoadGen, part by part, beside another model, a fleet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from common.errors import PipelineError
from common.load.endurance import parts as endurance
from common.load.endurance.spool import Spool
from common.load.endurance.whole_load import WholeLoad
from common.load.generator.harness import Prepared, load_together
from common.load.generator.loadgen import drive, results
from common.load.interference import (
    MAIN,
    OTHER,
    ROUNDS,
    TOGETHER,
    interference_figures,
    interference_rows,
    measure_interference,
)
from common.load.results.load_figures import LoadRun
from common.load.results.load_tables import LoadTables, Row, interrupted, interruption
from common.load.results.slow_calls import slow_call_rows
from common.load.settings import Asked

Loaded = tuple[LoadRun, LoadTables]  # the run whose requests and batches are told, and the other tables


class ProcessWatch(Protocol):
    """What samples this process: a context that yields its own notes."""

    @property
    def notes(self) -> list[str]:
        """Return what is missing or failed."""
        ...


def with_slow_calls(run: LoadRun, rows: Iterable[Row], lines: Sequence[str], lacks: Sequence[str]) -> Loaded:
    """Return a run with its slow calls, as others found them, and with what these lack."""
    lacking = [*interruption(run.record), *lacks]
    slow = {"load_disturbances": slow_call_rows(run.record, rows)}
    return run, LoadTables(rows=slow, incomplete={"load_disturbances": lacking}, notes=lines)


def by_loadgen(prepared: Prepared, asked: Asked, folder: Path) -> Loaded:
    """Let MLPerf LoadGen send the requests; it leaves its logs in a folder, unless a signal ends the run."""
    limits = {"rate_hz": asked["rate"], "bound_s": asked["p99_bound"], "duration_s": asked["duration"]}
    scenario = asked["scenario"]
    service, policy, listener = prepared.service, prepared.policy, prepared.listener
    record = drive(scenario, service, policy, folder, **limits, seed=asked["seed"], listener=listener)
    found = {} if record.is_interrupted else {"loadgen_results": results(folder)}
    figures = {"arrivals": f"LoadGen {scenario}", **found}
    return prepared.run_of(record, is_open=scenario == "server"), LoadTables(figures=figures)


def part_by_part(
    prepared: Prepared, asked: Asked, watched: Callable[[Spool[Any]], AbstractContextManager[ProcessWatch]]
) -> Loaded:
    """Load a service part by part; the run that is told is the last part.

    Args:
        prepared: the service.
        asked: how long, and how long each part.
        watched: samples this process into a spool meanwhile.
    """
    spool, last, whole = Spool[Any](), list[LoadRun](), WholeLoad()

    def run_part(index: int, duration_s: float) -> endurance.LoadPart:
        last[:] = [prepared.part(index, duration_s).load()]
        whole.add(last[0].record, last[0].verdict)
        return endurance.part_of(last[0].record, last[0].verdict)

    with watched(spool) as watch:
        parts = endurance.endure(run_part, asked["duration"], asked["part"])
    samples, count = spool.items(), endurance.part_count(asked["duration"], asked["part"])
    is_cut = count > len(parts) or parts[-1].is_interrupted
    course = {**endurance.summary(endurance.course(parts, samples), parts), **whole.figures()}
    return last[0], interrupted(
        f"a signal ended the load in part {len(parts)} of {count}" if is_cut else "",
        *("endurance", "endurance_summary"),
        rows={"endurance": endurance.minute_rows(parts, samples)},
        documents={"endurance_summary": course},
        notes=watch.notes,
    )


def alone_and_together(prepared: Prepared, other: Prepared, names: Sequence[str], duration_s: float) -> Loaded:
    """Load two services alone and together; the run that is told is the first one's last beside the other."""

    def loads(index: int, services: Sequence[int]) -> list[LoadRun]:
        return load_together([(prepared, other)[own].part(index, duration_s / ROUNDS) for own in services])

    states = measure_interference(loads)
    rows = interference_rows(states, dict(zip((MAIN, OTHER), names, strict=True)))
    runs = states[MAIN, TOGETHER].runs
    return runs[-1], interrupted(
        f"a signal ended round {len(runs) + 1} of {ROUNDS}" if len(runs) < ROUNDS else "",
        "load_interference",
        rows={"load_interference": rows},
        figures={"interference": interference_figures(rows)},
    )


def of_fleet(
    paths: Sequence[Path], results_of: Generator[tuple[int, Row]], progress: Callable[[float, float], None]
) -> LoadTables:
    """Return a row per model, in the order of the models; those before a signal or a lost worker are kept.

    Args:
        paths: files of the models.
        results_of: the place of each model and its row, as they come.
        progress: told how many models of how many are measured.

    Raises:
        PipelineError: the workers were lost before any model was measured.
        KeyboardInterrupt: a signal came as early.
    """
    rows, reason = dict[int, Row](), ""
    try:
        with contextlib.closing(results_of):
            for place, row in results_of:
                rows[place] = row
                progress(len(rows), len(paths))
    except (KeyboardInterrupt, PipelineError) as error:
        if not rows:
            raise
        reason = str(error) or "a signal ended the load tests"
    cut = f"{reason}: {len(rows)} of {len(paths)} models were measured" if reason else ""
    return interrupted(cut, "load_fleet", rows={"load_fleet": [rows[place] for place in sorted(rows)]})
