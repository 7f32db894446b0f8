"""One experiment: 01 to 03 and 09 look for the cause in a model, which then runs in turn with its mended twin."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx

from benchmarks.process import ROOT
from common.comparison.difference_rows import DEFAULT_MARGIN_SHARE, ComparisonSettings, comparison_rows
from common.measurements.paired_measurement import measured_pair
from common.mending.trial_rows import measured_gain
from common.onnx_graph.load import load_model
from common.profiling.runs.loop import Budget, SessionPlan
from common.runtime.inputs.given import make_feeds
from common.runtime.sessions.session import SessionSettings

Row = Mapping[str, str]
PAIRS_PER_RUN = 4  # a gain needs more runs than a profile
WARMUP, SEED = 10, 0


@dataclass(frozen=True, slots=True)
class Settings:
    """How models are measured."""

    runs: int
    threads: int
    ceilings: tuple[str, ...]  # flags of 03: given ceilings, or the file of measured ones
    rules: Path  # the file of the rules
    of_host: frozenset[str]  # rules that are about the host during the runs, and about no model
    is_measured: bool  # whether the measurements are there, and only 03 and 09 run again


@dataclass(frozen=True, slots=True)
class Gain:
    """A gain and its interval in us; None is unknown."""

    likely_us: float | None
    low_us: float | None
    high_us: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """What a pair of models measured: the median of the first one, what the second one gained, and doubts."""

    median_us: float
    gain_us: float
    low_us: float | None
    high_us: float | None
    doubts: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a planted cause."""

    rank: int | None  # place of the rule among the findings, from 1; None where it found nothing
    first: str  # the rule of the first finding
    found_by: str  # the rule whose gain is predicted: of those that found the same nodes, the one with most to gain
    is_near_miss: bool
    predicted: Gain
    measured: Gain
    median_us: float  # of the model with the cause
    is_busy: bool  # whether other work disturbed the pairs

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured gain is inside the predicted interval; None where one of them is unknown."""
        low, gain, high = self.predicted.low_us, self.measured.likely_us, self.predicted.high_us
        return None if low is None or gain is None or high is None else low <= gain <= high


def run(script: str, *flags: object) -> None:
    """Run a stage.

    Raises:
        CalledProcessError: it failed; what it said is on stderr.
    """
    subprocess.run([sys.executable, str(ROOT / script), *map(str, flags), "--quiet"], check=True, cwd=ROOT)


def compute(script: str, *flags: object) -> None:
    """Run a stage that measures nothing, in this process: most of its time would be its start.

    Raises:
        RuntimeError: it failed; what it said is on stderr.
    """
    main = importlib.import_module(script.removesuffix(".py")).main
    if main([*map(str, flags), "--quiet"]):
        raise RuntimeError(f"{script} failed")


def findings(
    model: Path, out: Path, settings: Settings, optimization: str = "all", sizes: Mapping[str, int] | None = None
) -> list[Row]:
    """Measure a model unless that was done, and return what 09 finds in it, but for what it finds of the host."""
    of_model = ("--model", model, *(f"--dim={name}={size}" for name, size in (sizes or {}).items()))
    if not settings.is_measured:
        session = ("--threads", settings.threads, "--optimization", optimization)
        run("01_profile_onnx.py", *of_model, "--runs", settings.runs, "--idle", "10ms", *session, "--out", out)
        compute("02_shapes_flops_bytes.py", *of_model, "--out", out)
    compute("03_merge_profile_metrics.py", *settings.ceilings, "--out", out)
    compute("09_trace_report.py", "--rules", settings.rules, "--out", out)
    with (out / "bottlenecks.csv").open(newline="", encoding="utf-8") as lines:
        return [row for row in csv.DictReader(lines) if row["finding"] not in settings.of_host]


def confirmed(
    rule: str,
    models: tuple[onnx.ModelProto, onnx.ModelProto],
    folder: Path,
    settings: Settings,
    optimization: str,
    sizes: Mapping[str, int],
) -> Outcome:
    """Look for the cause of a rule in the first model, and measure it in turn with the second one, its mended twin.

    The level of a host moves between the profile and the pairs. So the predicted gain is stated at the level of the
    pairs: times their median over that of the profile.
    """
    folder.mkdir(exist_ok=settings.is_measured)
    paths, file = [folder / "planted.onnx", folder / "mended.onnx"], folder / "pair.json"
    if not settings.is_measured:
        for path, model in zip(paths, models, strict=True):
            onnx.save(model, path)
        measured = in_turn(paths, settings, optimization, sizes)
        file.write_text(json.dumps(asdict(measured)), encoding="utf-8")
    pair = Pair(**json.loads(file.read_text(encoding="utf-8")))
    found = findings(paths[0], folder / "out", settings, optimization, sizes)
    ranks = [place for place, row in enumerate(found, 1) if rule in (row["finding"], *json.loads(row["also_found_by"]))]
    row = found[ranks[0] - 1] if ranks else {}
    profiled = json.loads((folder / "out" / "latency_summary.json").read_text(encoding="utf-8"))
    level = pair.median_us / profiled["p50_us"]
    cells = (row.get(f"gain{end}_us", "") for end in ("", "_low", "_high"))
    return Outcome(
        ranks[0] if ranks else None,
        found[0]["finding"] if found else "",
        row.get("finding", ""),
        row.get("is_near_miss") == "True",
        Gain(*(level * float(cell) if cell else None for cell in cells)),
        Gain(pair.gain_us, pair.low_us, pair.high_us),
        pair.median_us,
        bool(pair.doubts),
    )


def in_turn(paths: Sequence[Path], settings: Settings, optimization: str, sizes: Mapping[str, int]) -> Pair:
    """Run two models in turn on the same inputs, as 30 does."""
    options = SessionSettings(settings.threads, optimization=optimization)
    models = [load_model(path, {}, sizes) for path in paths]
    contenders = [
        SessionPlan(path, make_feeds(model.graph, {}, SEED), options) for path, model in zip(paths, models, strict=True)
    ]
    budget = Budget(WARMUP, PAIRS_PER_RUN * settings.runs)
    with tempfile.TemporaryDirectory() as folder:
        first, second = measured_pair(contenders, models, budget, Path(folder), _without_bar, _said)
    chosen = ComparisonSettings(DEFAULT_MARGIN_SHARE, is_paired=True, is_across_models=True)
    rows = comparison_rows([first], second, chosen)
    gain = measured_gain(rows)
    if gain is None:
        raise RuntimeError(f"no pair of runs of {paths[0]} counts")
    before_us = next(row["baseline_value"] for row in rows if row["compared_figure"] == "p50_us")
    return Pair(before_us, gain.gain_us, gain.low_us, gain.high_us, "; ".join(first.doubts))


def _without_bar() -> Callable[[float, float], None]:
    return lambda _done, _all: None


def _said(note: str) -> None:
    print(note, file=sys.stderr)
