"""Stage 10 with flags that are seldom given together: each pair does what both say."""

import pandas as pd
import pytest

from tests.support.load_runs import document, load_test

SHORT = ("--rate", "50", "--duration", "400ms")
SEARCH = ("--search", "--p99-bound", "1s", "--budget", "1s", "--duration", "200ms")
IMAGES = ["decode_us", "resize_us", "normalize_us"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "sharing", [("--pool", "shared"), ("--workers", "processes"), ("--batch-max", "4", "--batch-wait", "1ms")]
)
def test_two_models_share_the_host_as_one_does(cnn, mlp, tmp_path, sharing):
    load_test(cnn, tmp_path, *SHORT, "--with", mlp, *sharing)
    table = pd.read_csv(tmp_path / "load_interference.csv")
    assert table["served_model"].tolist() == [cnn.name] * 2 + [mlp.name] * 2
    assert (table["sent_count"] == table["completed_count"]).all() and (table["sent_count"] > 0).all()


@pytest.mark.slow
def test_only_the_model_that_takes_images_gets_them(cnn, mlp, photos, tmp_path):
    left = load_test(cnn, tmp_path, *SHORT, "--with", mlp, "--images", photos)
    assert (left.batches[IMAGES] > 0).all().all() and left.summary["sample_image_count"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("pool", [(), ("--pool", "own,shared")])
def test_a_search_sends_images_too(cnn, photos, tmp_path, pool):
    left = load_test(cnn, tmp_path, *SEARCH, "--batch-max", "2", "--images", photos, *pool)
    best = document(tmp_path / "load_best.json")
    assert (left.batches[IMAGES] > 0).all().all() and best["trial_count"] > 0


@pytest.mark.slow
def test_a_search_is_followed_by_what_else_is_asked_for(cnn, mlp, tmp_path):
    left = load_test(
        cnn, tmp_path, *SEARCH, "--batch-max", "1", "--with", mlp, "--with-rate", "20", "--provider-matrix"
    )
    assert {*left.summary["interference"]} == {"main", "other"}
    assert (tmp_path / "load_best.json").exists() and (tmp_path / "provider_comparison.csv").exists()


def test_loadgen_sends_images_to_sessions_in_processes(cnn, photos, tmp_path):
    pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")
    flags = ("--scenario", "server", "--rate", "50", "--duration", "200ms", "--p99-bound", "10s")
    left = load_test(cnn, tmp_path, *flags, "--images", photos, "--workers", "processes")
    assert (left.batches[IMAGES] > 0).all().all()
    assert left.summary["sample_image_count"] == 3 and left.summary["session_workers"] == "processes"


def test_sessions_in_processes_answer_with_classes(cnn, tmp_path):
    left = load_test(cnn, tmp_path, *SHORT, "--workers", "processes", "--top-k", "3")
    assert (left.batches["postprocess_us"] > 0).all() and left.summary["failed_count"] == 0
