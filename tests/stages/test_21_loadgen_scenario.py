"""Stage 21: LoadGen sends the requests to real sessions of a tiny model, and judges the load."""

import pytest

from tests.support.processes.load_runs import load_test

SCRIPT = "21_loadgen_scenario.py"
IMAGES = ["decode_us", "resize_us", "normalize_us"]
pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["server", "single-stream", "multi-stream", "offline"])
def test_loadgen_sends_the_requests_and_judges_the_run(mlp, tmp_path, scenario):
    rate = ("--rate", "300") if scenario == "server" else ()
    (tmp_path / "load_disturbances.csv").touch()
    flags = ("--scenario", scenario, *rate, "--duration", "300ms", "--batch-max", "8", "--p99-bound", "1s")
    left = load_test(mlp, tmp_path, *flags, script=SCRIPT)
    found = left.summary["loadgen_results"]
    assert left.summary["arrivals"] == f"LoadGen {scenario}"
    assert left.summary["completed_count"] == left.summary["sent_count"] > 0
    assert f"MLPerf LoadGen: {found['result_validity']}; its rules: " in left.done.stdout
    for name, rule in (("result_min_duration_met", "duration"), ("early_stopping_met", "early stopping")):
        assert (f"{rule} met" in left.done.stdout) == found[name]
    assert "MLPerf Results Summary" in (tmp_path / "loadgen_summary.txt").read_text()
    # Its queries begin before ours enter the queue, and end after ours are answered.
    assert found["result_max_latency_ns"] >= 1e3 * left.requests["request_latency_us"].max()
    assert found["result_min_latency_ns"] >= 1e3 * left.requests["request_latency_us"].min()
    assert not (tmp_path / "load_disturbances.csv").exists()  # its batches are of an earlier load
    load_test(mlp, tmp_path, "--rate", "300", "--duration", "50ms")
    assert not (tmp_path / "loadgen_summary.txt").exists()  # it is of no load in the folder


@pytest.mark.slow
def test_loadgen_sends_images_to_sessions_in_processes(cnn, photos, tmp_path):
    flags = ("--scenario", "server", "--rate", "50", "--duration", "200ms", "--p99-bound", "10s")
    left = load_test(cnn, tmp_path, *flags, "--images", photos, "--workers", "processes", script=SCRIPT)
    assert (left.batches[IMAGES] > 0).all().all()
    assert left.summary["sample_image_count"] == 3 and left.summary["session_workers"] == "processes"
