"""Stage 10 with requests that bring images: real JPEG files, real sessions."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from models.__main__ import BUILDERS
from tests.support.command_lines import run_stage

SCRIPT = "10_load_test.py"
STAGES = ("decode", "resize", "normalize", "assemble", "session_run", "postprocess")


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "cnn.onnx"
    path.write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for index, (width, height) in enumerate([(97, 61), (61, 97), (211, 199)]):
        noise = np.random.default_rng(index).integers(0, 255, (height, width, 3), np.uint8)
        Image.fromarray(noise).save(folder / f"{index}.jpg")
    return folder


def test_every_stage_is_timed_for_requests_and_batches(cnn, photos, tmp_path):
    flags = ("--rate", "300", "--duration", "300ms", "--batch-max", "3", "--batch-wait", "2ms", "--threads", "1")
    images = ("--images", photos, "--top-k", "3")
    done = run_stage(SCRIPT, "--model", cnn, *flags, *images, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "load_summary.json").read_text())
    requests, batches = (pd.read_csv(tmp_path / f"load_{name}.csv") for name in ("requests", "batches"))
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
    assert "where requests spent their time: queue" in done.stdout
    assert summary["pcie_unavailable"] and summary["device_copies_unavailable"]
    named = summary["standard_metrics"]
    before = requests[["decode_us", "resize_us", "normalize_us", "assemble_us"]].sum().sum()
    assert named["nv_inference_compute_input_duration_us"] == pytest.approx(before, rel=1e-6)
    assert named["process.memory.usage"] == summary["resident_bytes"] > 1e6
    assert named["process.thread.count"] == summary["process_thread_count"] >= 1


def test_a_run_without_images_has_no_such_stages(cnn, tmp_path):
    done = run_stage(SCRIPT, "--model", cnn, "--duration", "100ms", "--threads", "1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    requests = pd.read_csv(tmp_path / "load_requests.csv")
    assert requests[["decode_us", "resize_us", "normalize_us", "postprocess_us"]].isna().all().all()
    assert (requests["session_run_us"] > 0).all()
    assert json.loads((tmp_path / "load_summary.json").read_text())["sample_image_count"] is None
    assert "where requests spent" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--images", "absent"), "--images: absent: cannot be read (No such file or directory)"),
        (("--images", "README.md"), "--images: README.md: holds no image; give a file or a folder of"),
        (("--top-k", "1000"), "--top-k: 1000, but the model's first output is float32 of shape [1, "),
        (("--top-k", "0"), "--top-k: '0' is not a whole number"),
        (("--normalize", "sepia"), "--normalize: invalid choice: 'sepia'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(cnn, tmp_path, flags, problem):
    done = run_stage(SCRIPT, "--model", cnn, *flags, "--duration", "100ms", "--out", tmp_path)
    assert done.returncode == 2 and problem in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_model_of_text_takes_no_images(photos, tmp_path):
    model = tmp_path / "mlp.onnx"
    model.write_bytes(BUILDERS["tiny-mlp"]().SerializeToString())
    done = run_stage(SCRIPT, "--model", model, "--images", photos, "--out", tmp_path)
    assert done.returncode == 2 and "--images: no input has the shape (N, 3, H, W)" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_broken_image_is_named(cnn, photos, tmp_path):
    content = (photos / "0.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])
    done = run_stage(SCRIPT, "--model", cnn, "--images", tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 2 and "cut.jpg: cannot be decoded (" in done.stderr
    assert done.stderr.count("\n") == 1
