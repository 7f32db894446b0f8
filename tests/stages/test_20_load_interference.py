"""Stage 20 on real sessions of two tiny models."""

import pandas as pd
import pytest

from tests.support.processes.load_runs import load_test, refused

SCRIPT = "20_load_interference.py"
SHORT = ("--rate", "50", "--duration", "400ms")
IMAGES = ["decode_us", "resize_us", "normalize_us"]


@pytest.mark.slow
def test_two_models_are_loaded_alone_and_together(mlp, tokens, tmp_path):
    flags = ("--rate", "200", "--duration", "2s", "--with", tokens, "--with-rate", "100", "--with-dim", "seq=7")
    left = load_test(mlp, tmp_path, *flags, script=SCRIPT)
    table = pd.read_csv(tmp_path / "load_interference.csv")
    assert [*zip(table["model_role"], table["load_state"], strict=True)] == [
        ("main", "alone"),
        ("main", "together"),
        ("other", "alone"),
        ("other", "together"),
    ]
    assert table["served_model"].tolist() == ["tiny-mlp.onnx"] * 2 + ["tokens.onnx"] * 2
    outcomes = table[[f"{name}_count" for name in ("completed", "rejected", "failed", "cancelled")]].sum(axis=1)
    assert (table["sent_count"] == outcomes).all()
    assert table["sent_count"][0] == table["sent_count"][1] > 300  # the same requests
    assert table["sent_count"][2] == table["sent_count"][3] > 130
    assert table["answered_rate_factor"].notna().tolist() == [False, True, False, True]
    figures = left.summary["interference"]
    assert {*figures} == {"main", "other"} and figures["other"]["served_model"] == "tokens.onnx"
    assert figures["main"]["answered_rate_factor"] == pytest.approx(table["answered_rate_factor"][1], rel=1e-6)
    assert "x: together over alone" in left.done.stdout and "tokens" in left.done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "sharing", [("--pool", "shared"), ("--workers", "processes"), ("--batch-max", "4", "--batch-wait", "1ms")]
)
def test_two_models_share_the_host_as_one_does(cnn, mlp, tmp_path, sharing):
    load_test(cnn, tmp_path, *SHORT, "--with", mlp, *sharing, script=SCRIPT)
    table = pd.read_csv(tmp_path / "load_interference.csv")
    assert table["served_model"].tolist() == [cnn.name] * 2 + [mlp.name] * 2
    assert (table["sent_count"] == table["completed_count"]).all() and (table["sent_count"] > 0).all()


@pytest.mark.slow
def test_only_the_model_that_takes_images_gets_them(cnn, mlp, photos, tmp_path):
    left = load_test(cnn, tmp_path, *SHORT, "--with", mlp, "--images", photos, script=SCRIPT)
    assert (left.batches[IMAGES] > 0).all().all() and left.summary["sample_image_count"] == 3


def test_a_size_that_the_other_model_lacks_is_named_by_its_flag(mlp, tmp_path):
    text = refused(mlp, tmp_path, "--with", mlp, "--with-dim", "seq=3", script=SCRIPT)
    assert "--with-dim: seq=3" in text and "no dynamic dimension 'seq'" in text
