"""Stage 10 with requests that bring images: real JPEG files, real sessions."""

import pytest

from tests.support.processes.load_runs import load_test, refused

STAGES = ("decode", "resize", "normalize", "assemble", "session_run", "postprocess")


@pytest.mark.slow
def test_every_stage_is_timed_for_requests_and_batches(cnn, photos, tmp_path):
    flags = ("--rate", "300", "--duration", "300ms", "--batch-max", "3", "--batch-wait", "2ms")
    left = load_test(cnn, tmp_path, *flags, "--images", photos, "--top-k", "3")
    summary, requests, batches = left.summary, left.requests, left.batches
    assert (summary["sample_image_count"], summary["top_class_count"]) == (3, 3)
    assert summary["image_normalization"] == "imagenet"
    assert summary["completed_count"] == len(requests) > 0
    columns = [f"{name}_us" for name in STAGES]
    assert (batches[columns] > 0).all().all()
    assert (batches[columns].sum(axis=1) <= batches["ended_us"] - batches["started_us"] + 1e-3).all()
    assert batches[["host_to_device_us", "device_to_host_us"]].isna().all().all()
    joined = requests.merge(batches, on="load_batch_index", suffixes=("", "_of_batch"))
    assert all((joined[name] == joined[f"{name}_of_batch"]).all() for name in columns)
    shares = summary["latency_shares"]
    counted = requests[~requests["is_warmup_request"]]
    for name in STAGES:
        expected = counted[f"{name}_us"].sum() / counted["request_latency_us"].sum()
        assert shares[name] == pytest.approx(expected, rel=1e-3)
    assert sum(shares.values()) == pytest.approx(1)
    assert "where requests spent their time: queue" in left.done.stdout
    assert summary["pcie_unavailable"] and summary["device_copies_unavailable"]
    named = summary["standard_metrics"]
    before = requests[["decode_us", "resize_us", "normalize_us", "assemble_us"]].sum().sum()
    assert named["nv_inference_compute_input_duration_us"] == pytest.approx(before, rel=1e-6)
    assert named["process.memory.usage"] == summary["resident_bytes"] > 1e6
    assert named["process.thread.count"] == summary["process_thread_count"] >= 1


def test_a_run_without_images_has_no_such_stages(cnn, tmp_path):
    left = load_test(cnn, tmp_path, "--duration", "100ms")
    assert left.requests[["decode_us", "resize_us", "normalize_us", "postprocess_us"]].isna().all().all()
    assert (left.requests["session_run_us"] > 0).all()
    assert left.summary["sample_image_count"] is None
    assert "where requests spent" not in left.done.stdout


def test_a_broken_image_is_named(cnn, photos, tmp_path):
    content = (photos / "0.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])
    text = refused(cnn, tmp_path / "out", "--images", tmp_path)
    assert "cut.jpg: cannot be decoded (" in text
