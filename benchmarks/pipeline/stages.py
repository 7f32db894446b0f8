"""Time each computed stage, start-up included, against its budget.

The finished folder is copied first, and every stage runs on the copy with the command that its sidecar recorded, so
nothing is overwritten and the settings are those of the real run. The best of the repetitions counts, because other
processes can only add time. 00 and 01 are measurements: they take as long as their settings say.

    stage                        best    worst   budget
    02_shapes_flops_bytes.py   0.98 s   1.04 s   2.00 s
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.process import ROOT
from common.artifacts import provenance
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.stages import STAGES
from common.messages.errors import PipelineError
from common.view.text import text_table

COMPUTED = [name for name, stage in STAGES.items() if name.endswith(".py") and name >= "02" and not stage.is_aside]
BUDGET_S = {script: 6.0 if script == "06_plots.py" else 2.0 for script in COMPUTED}


def recorded_flags(script: str, folder: Path) -> list[str]:
    """Return the flags of the stage's last run without ``--out`` and ``--quiet``.

    Raises:
        UpstreamError: the stage has not run in this folder.
    """
    sidecar = provenance.load(folder / ARTIFACTS[STAGES[script].primary].file, f"run {script}")
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--out")
    flags.add_argument("--quiet", action="store_true")
    return flags.parse_known_args(shlex.split(sidecar.command)[1:])[1]


def seconds_of(script: str, flags: Sequence[str], folder: Path) -> float:
    """Return the wall time of one run of the stage as a process.

    Raises:
        PipelineError: the stage failed; the message has its error output.
    """
    command = [sys.executable, script, *flags, "--out", str(folder), "--quiet"]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    if done.returncode:
        raise PipelineError(script, f"failed ({done.stderr.strip()})", "make the folder with `make run` first")
    return taken


def measure(folder: Path, repetitions: int) -> dict[str, list[float]]:
    """Return the wall times of every computed stage, in the order of the stages."""
    flags = {script: recorded_flags(script, folder) for script in BUDGET_S}
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        return {
            script: [seconds_of(script, given, Path(copy)) for _ in range(repetitions)]
            for script, given in flags.items()
        }


def report(times: dict[str, list[float]]) -> str:
    """Return a row per stage; a stage above its budget is marked."""
    rows = []
    for script, taken in times.items():
        verdict = "" if min(taken) < BUDGET_S[script] else "above"
        rows.append((script, f"{min(taken):.2f} s", f"{max(taken):.2f} s", f"{BUDGET_S[script]:.2f} s", verdict))
    return text_table(("stage", "best", "worst", "budget", ""), rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="stages.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER", help="a finished folder")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="runs of each stage (default: 3)")
    given = parser.parse_args(argv)
    try:
        times = measure(given.out.resolve(), max(1, given.repetitions))
    except PipelineError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return error.exit_code
    print(report(times))
    return int(any(min(taken) >= BUDGET_S[script] for script, taken in times.items()))


if __name__ == "__main__":
    sys.exit(main())
