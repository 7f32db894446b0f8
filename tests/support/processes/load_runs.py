"""Load tests run in the process of the tests, what it leaves, and the sums that hold for every load."""

import json
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pandas as pd
import pytest

from tests.support.processes.command_lines import run_stage

SCRIPT = "10_load_test.py"
OUTCOMES = ("completed", "rejected", "failed", "cancelled")


def document(path: Path) -> Any:
    """Read a JSON file that holds no NaN."""
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)


@dataclass(frozen=True)
class LeftByLoad:
    """What a load test printed, and its tables."""

    done: CompletedProcess[str]
    summary: dict[str, Any]
    requests: pd.DataFrame
    batches: pd.DataFrame


def load_test(model: Path, out: Path, *flags: object, script: str = SCRIPT, code: int = 0) -> LeftByLoad:
    """Run a load test that ends well, or breaks a threshold, and check that its counts balance."""
    done = run_stage(script, "--model", model, "--threads", "1", *flags, "--out", out)
    assert done.returncode == code, done.stderr
    requests, batches = (pd.read_csv(out / f"load_{name}.csv") for name in ("requests", "batches"))
    left = LeftByLoad(done, document(out / "load_summary.json"), requests, batches)
    balances(left)
    return left


def balances(left: LeftByLoad) -> None:
    """Check that every request has one outcome, and every batch its requests and its time."""
    outcomes = left.requests["outcome"].value_counts()
    for name in OUTCOMES:
        assert left.summary[f"{name}_count"] == outcomes.get(name, 0)
    assert left.summary["sent_count"] == len(left.requests) == outcomes.sum()
    served = left.requests.dropna(subset="load_batch_index").groupby("load_batch_index").size()
    assert served.tolist() == left.batches["request_count"].tolist()
    stages = left.batches[["assemble_us", "session_run_us"]].sum(axis=1)
    ended = left.batches["session_run_us"] > 0  # the others failed, or were given up
    assert (stages <= left.batches["ended_us"] - left.batches["started_us"] + 1e-3)[ended].all()


def refused(model: Path, out: Path, *flags: object, script: str = SCRIPT) -> str:
    """Run a load test that its command line forbids; return the one line that it prints."""
    given = ("--models", model) if script == "18_load_fleet.py" else ("--model", model)
    done = run_stage(script, *given, *flags, "--out", out)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and not done.stdout
    assert not [*out.glob("*.csv"), *out.glob("load_*.json")]
    return done.stderr
