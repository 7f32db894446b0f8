"""Stage 10 searching, loading for long and comparing providers, on real sessions of a tiny model."""

import pandas as pd
import pytest

from tests.support.command_lines import run_stage
from tests.support.load_runs import SCRIPT, document


def done(model, out, *flags):
    ended = run_stage(SCRIPT, "--model", model, *flags, "--out", out)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def searched(mlp, tmp_path_factory):
    out = tmp_path_factory.mktemp("searched")
    flags = ("--search", "--p99-bound", "300ms", "--budget", "2s", "--batch-max", "2", "--threads", "2")
    return done(mlp, out, *flags, "--duration", "300ms", "--usd-per-hour", "3", "--avg-power-w", "7"), out


@pytest.mark.slow
def test_the_search_leaves_its_runs_and_the_best_one(searched):
    text, out = searched
    best, trials = document(out / "load_best.json"), pd.read_csv(out / "load_search.csv")
    assert best["bound_us"] == 300_000
    assert best["is_bound_met"] and {*best["best_by"]} == {"rate", "energy", "cost"}
    assert len(trials) == best["trial_count"] and {*trials["trial_kind"]} == {"search", "curve"}
    first = best["best_by"]["rate"]
    runs = trials[trials["is_within_bound"]]
    key = ["batch_max_count", "batch_wait_us", "session_count", "threads"]
    own = runs[(runs[key] == [first[name] for name in key]).all(axis=1) & (runs["trial_kind"] == "search")]
    assert first["sustained_requests_per_s"] in own["offered_requests_per_s"].tolist()
    assert first["request_energy_j"] == pytest.approx(7 / first["sustained_requests_per_s"])
    assert "highest rate" in text


@pytest.mark.slow
def test_batches_are_timed_for_every_division_of_the_processors(searched):
    table = pd.read_csv(searched[1] / "load_batch_times.csv")
    rows = [*zip(table["session_count"], table["threads"], table["request_count"], strict=True)]
    assert rows == [(1, 2, 1), (1, 2, 2), (2, 1, 1), (2, 1, 2)]
    assert (table["call_p50_us"] > 0).all()
    assert table["requests_per_joule"].tolist() == pytest.approx((table["full_requests_per_s"] / 7).tolist())


@pytest.mark.slow
def test_the_tables_of_a_run_are_those_of_the_best(searched):
    _, out = searched
    best, run = document(out / "load_best.json")["best_by"]["rate"], document(out / "load_summary.json")
    for name in ("batch_max_count", "batch_wait_us", "session_count", "threads"):
        assert run[name] == pytest.approx(best[name])


@pytest.mark.slow
def test_a_bound_that_nothing_meets_says_what_is_nearest(mlp, tmp_path):
    flags = ("--search", "--p99-bound", "0.0001ms", "--budget", "2s", "--batch-max", "1", "--threads", "1")
    text = done(mlp, tmp_path, *flags, "--duration", "300ms")
    best = document(tmp_path / "load_best.json")
    assert not best["is_bound_met"] and best["best_by"] == {}
    assert "nothing meets" in text
    assert best["nearest"] == {} or best["nearest"]["request_p99_us"] > 0.1  # a busy host may make every run invalid


@pytest.mark.slow
def test_a_long_load_has_a_row_per_part(mlp, tmp_path):
    text = done(mlp, tmp_path, "--rate", "50", "--duration", "3s", "--part", "500ms")
    parts, course = pd.read_csv(tmp_path / "endurance.csv"), document(tmp_path / "endurance_summary.json")
    assert parts["part_index"].tolist() == [*range(6)]
    assert (parts["sent_count"] == parts["completed_count"]).all() and (parts["sent_count"] > 5).all()
    assert parts["process_thread_count"].dropna().ge(1).all()
    assert not course["is_leak"]
    assert "emory" in text


def test_providers_are_compared_with_the_cpu(mlp, tmp_path):
    done(mlp, tmp_path, "--provider-matrix", "--duration", "300ms")
    matrix = pd.read_csv(tmp_path / "provider_comparison.csv").set_index("compared_provider")
    assert matrix.loc["CPUExecutionProvider", "max_abs_error"] == 0.0
    assert matrix.loc["CPUExecutionProvider", "is_equal_shape"]


@pytest.mark.slow
def test_06_draws_what_10_left(mlp, tmp_path):
    out, flags = tmp_path, ("--search", "--p99-bound", "300ms", "--budget", "2s", "--batch-max", "2", "--threads", "2")
    done(mlp, out, *flags, "--duration", "3s", "--part", "500ms")
    ended = run_stage("06_plots.py", "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert {"load.svg", "load_curve.svg", "long_load.svg"} <= {path.name for path in (out / "plots").iterdir()}
    report = (out / "report.html").read_text(encoding="utf-8")
    assert '<section id="load">' in report and "p99 within 300 ms" in report
