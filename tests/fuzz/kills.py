"""Kills and signals at any moment of a stage: its tables are all old or all new, and `make` then ends with 0."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.stages import STAGES
from models.__main__ import BUILDERS
from tests.fuzz.make import Blow, Made, link_project, make
from tests.fuzz.oracle import INTERRUPTED, Fault, digests, leftovers, unfinished
from tests.fuzz.pipeline import in_child
from tests.fuzz.programs import SCRIPTS
from tests.fuzz.trial import Trial
from tests.support.paths import ROOT

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGKILL)
OLD, NEW = "PEAK_FLOPS=1e11", "PEAK_FLOPS=2e11"  # 03 and what reads it are made again
HIT = ("03_merge_profile_metrics.py", "04_critical_path.py", "05_energy_estimate.py", "07_fpga_candidates.py")
HIT += ("06_plots.py", "02_shapes_flops_bytes.py", "01_profile_onnx.py")
WEIGHTS = (3, 3, 3, 3, 1, 3, 1)  # 01 and 06 take seconds
EVENTS = 60  # calls to the file system: no computed stage makes many more
LONGEST_S = {"01_profile_onnx.py": 3.0, "06_plots.py": 2.0}
START_S = 2.5
MODEL = ("--model", "case.onnx", "--dim", "batch=1")
NEEDED = {  # flags without which a script ends before it reads anything
    "01": MODEL,
    "02": MODEL,
    "10": (*MODEL, "--duration", "200ms"),
    "11": ("--baseline", "out"),
    "12": ("--attach", "--port", "0"),
    "13": ("--qnn-csv", str(ROOT / "tests/npu/data/fp16/profile.csv")),
    "14": MODEL,
    "15": ("--ab", "case.onnx", "case.onnx", "--dim", "batch=1"),
    "16": ("--history", "runs.sqlite"),
    "17": ("--append-to", "runs.sqlite"),
    "18": ("--models", "case.onnx", "--dim", "batch=1"),
    "19": MODEL,
    "20": (*MODEL, "--with", "case.onnx"),
    "21": MODEL,
    "25": ("--endpoint", "http://127.0.0.1:9", "--served-model", "m"),
    "22": MODEL,
    "23": ("--engine", "dpu-b4096"),
}


class Kills:
    """The campaign."""

    name = "kills"

    def prepare(self, folder: Path, unit: float) -> None:
        """Run make once."""
        self.source, self.unit = folder / "made", unit
        in_child(_make_once, self.source)

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Hit a stage that make runs, or the start of a process."""
        if rng.random() < 0.25:
            _hit_start(rng, trial)
            return
        (script,) = rng.choices(HIT, WEIGHTS)
        number = rng.choice(SIGNALS)
        event = rng.randrange(1, EVENTS) if rng.random() < 0.7 else None
        blow = Blow(script, number, event, rng.uniform(0, LONGEST_S.get(script, 0.3)) * self.unit / 0.05)
        shutil.copytree(self.source, trial.folder, symlinks=True, dirs_exist_ok=True)
        trial.tell(f"{number.name} meets {script} at {f'call {event}' if event else f'{blow.after_s:.3f} s'}")
        self._hit(trial, blow)

    def _hit(self, trial: Trial, blow: Blow) -> None:
        before = digests(trial.out)
        forced = ("WARMUP=2",) if blow.script.startswith("01") else (f"-W{blow.script}", NEW)
        hit = make(trial.folder, *forced, blow=blow)
        trial.tell(f"make {' '.join(forced)}: {hit.code}, the stage ended with {hit.hit}")
        if blow.number != signal.SIGKILL:  # what a killed stage left is put right by the next one
            trial.faults += _faults_of_end(blow, hit)
            trial.faults += _mixtures(trial.out, before, blow.script)
            trial.faults += unfinished(trial.out, blow.script)
        forced = forced[-1:]
        again = make(trial.folder, *forced)
        if again.code:
            trial.fail("make", f"{blow.script}: fails after {blow.number.name}", again.text[-2000:])
        for script in SCRIPTS[1:]:
            trial.faults += unfinished(trial.out, script)
        if not again.code and "Nothing to be done" not in (last := make(trial.folder, *forced)).text:
            trial.fail("make", f"{blow.script}: not up to date after {blow.number.name}", last.text[-2000:])
        if left := leftovers(trial.out):
            trial.fail("leftovers", f"{blow.script}: after {blow.number.name} and make", str(left))


def _make_once(folder: Path) -> None:
    folder.mkdir()
    link_project(folder)
    (folder / "case.onnx").write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    if (made := make(folder, OLD)).code:
        raise RuntimeError(made.text)


def _faults_of_end(blow: Blow, made: Made) -> Iterator[Fault]:
    """A stage that a signal met ends with 130 and one line, or had ended well before."""
    if "Traceback" in made.text:
        yield Fault("traceback", f"{blow.script}: after {blow.number.name}", made.text[-3000:])
    if made.hit not in (0, INTERRUPTED, None):
        yield Fault("exit code", f"{blow.script}: {made.hit} after {blow.number.name}", made.text[-2000:])
    if made.text.count("interrupted") > 1:
        yield Fault("error lines", f"{blow.script}: {blow.number.name} is told twice", made.text[-2000:])


def _mixtures(folder: Path, before: dict[str, str], script: str) -> Iterator[Fault]:
    """Sidecars of one stage, of which some are old and some are new."""
    after = digests(folder)
    names = [f"{Path(ARTIFACTS[name].file).stem}.meta.json" for name in STAGES[script].writes]
    changed = [name for name in names if name in before and after.get(name) != before[name]]
    same = [name for name in names if name in before and after.get(name) == before[name]]
    if changed and same and script != "02_shapes_flops_bytes.py":
        yield Fault("tables", f"{script}: some new, some old", f"new {changed}, old {same}")


def _hit_start(rng: random.Random, trial: Trial) -> None:
    """Send a signal to a process of its own soon after its start."""
    script = rng.choice(SCRIPTS)
    number = rng.choice(SIGNALS[:3])
    after_s = rng.uniform(0, START_S * trial.unit / 0.05)
    trial.tell(f"{number.name} meets {script} {after_s:.3f} s after the start of its process")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / script), "--out", str(trial.out)]
    (trial.folder / "case.onnx").write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    command += NEEDED.get(script[:2], ())
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=trial.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        content, _ = process.communicate()
    text = content.decode("utf-8", "replace") if content else ""
    if "KeyboardInterrupt" in text and str(root) not in text:
        return  # Python itself was still starting: no line of ours had run
    if "Traceback" in text or "Error" in text:
        trial.fail("traceback", f"start: {number.name} within the imports", text[-3000:])
    if process.returncode not in (0, 3, INTERRUPTED, -number):  # 3: it found no tables before the signal came
        trial.fail("exit code", f"start: {process.returncode} after {number.name}", text[-2000:])
