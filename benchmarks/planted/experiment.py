"""One experiment: 01 to 03 and 09 look for the cause in a model, and 15 measures it in turn with its mended twin."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.process import ROOT

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """How models are measured.

    Attributes:
        ceilings: flags of 03: given ceilings, or the file of measured ones.
        rules: the file of the rules.
        of_host: rules that are about the host during the runs, and about no model.
        is_measured: whether the measurements are there, and only 03 and 09 run again.
    """

    runs: int
    ceilings: tuple[str, ...]
    rules: Path
    of_host: frozenset[str]
    is_measured: bool


@dataclass(frozen=True, slots=True)
class Gain:
    """A gain and its interval in us; None is unknown."""

    likely_us: float | None
    low_us: float | None
    high_us: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a planted cause.

    Attributes:
        rank: place of the rule among the findings, from 1; None where it found nothing.
        first: the rule of the first finding.
        median_us: of the model with the cause.
        is_busy: whether other work disturbed the pairs.
    """

    rank: int | None
    first: str
    is_near_miss: bool
    predicted: Gain
    measured: Gain
    median_us: float
    is_busy: bool

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured gain is inside the predicted interval; None where one of them is unknown."""
        ends = self.predicted.low_us, self.measured.likely_us, self.predicted.high_us
        low, gain, high = ends
        return None if low is None or gain is None or high is None else low <= gain <= high


def run(script: str, *flags: object) -> None:
    """Run a stage.

    Raises:
        CalledProcessError: it failed; what it said is on stderr.
    """
    subprocess.run([sys.executable, str(ROOT / script), *map(str, flags), "--quiet"], check=True, cwd=ROOT)


def rows_of(file: Path) -> list[Row]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def findings(model: Path, out: Path, settings: Settings, flags: Sequence[str], dimensions: Sequence[str]) -> list[Row]:
    """Measure a model unless that was done, and return what 09 finds in it, but for what it finds of the host."""
    if not settings.is_measured:
        runs = ("--runs", settings.runs, "--idle", "10ms")
        run("01_profile_onnx.py", "--model", model, *dimensions, *runs, *flags, "--out", out)
        run("02_shapes_flops_bytes.py", "--model", model, *dimensions, "--out", out)
    run("03_merge_profile_metrics.py", *settings.ceilings, "--out", out)
    run("09_trace_report.py", "--rules", settings.rules, "--out", out)
    return [row for row in rows_of(out / "bottlenecks.csv") if row["finding"] not in settings.of_host]


def confirmed(
    rule: str,
    models: tuple[onnx.ModelProto, onnx.ModelProto],
    folder: Path,
    settings: Settings,
    flags: Sequence[str] = (),
    dimensions: Sequence[str] = (),
) -> Outcome:
    """Look for the cause of a rule in the first model, and measure it in turn with the second one, its mended twin.

    The level of a host moves between the profile and the pairs. So the predicted gain is stated at the level of the
    pairs: times their median over that of the profile.
    """
    folder.mkdir(exist_ok=settings.is_measured)
    paths = [folder / "planted.onnx", folder / "mended.onnx"]
    if not settings.is_measured:
        for path, model in zip(paths, models, strict=True):
            onnx.save(model, path)
        pair = ("--ab", *paths, *dimensions, *flags, "--runs", 4 * settings.runs)
        run("15_paired_runs.py", *pair, "--out", folder / "pair")
    found = findings(paths[0], folder / "out", settings, flags, dimensions)
    ranks = [place for place, row in enumerate(found, 1) if rule in (row["finding"], *_names(row["also_found_by"]))]
    row = found[ranks[0] - 1] if ranks else {}
    rows = rows_of(folder / "pair" / "paired_comparison.csv")
    judged = next(row for row in rows if row["compared_figure"] == "p50_us")
    before_us = float(judged["baseline_value"])
    profiled = json.loads((folder / "out" / "latency_summary.json").read_text(encoding="utf-8"))
    level = before_us / profiled["p50_us"]
    shares = [judged[f"difference{end}_share"] for end in ("", "_high", "_low")]  # the highest is the least gain
    return Outcome(
        ranks[0] if ranks else None,
        found[0]["finding"] if found else "",
        row.get("is_near_miss") == "True",
        Gain(*(_number(row.get(f"gain{end}_us", ""), level) for end in ("", "_low", "_high"))),
        Gain(*(_number(share, -before_us) for share in shares)),
        before_us,
        "busy" in judged["verdict_reason"],
    )


def _names(cell: str) -> list[str]:
    return [str(name) for name in json.loads(cell)]


def _number(cell: str, factor: float) -> float | None:
    return factor * float(cell) if cell else None
