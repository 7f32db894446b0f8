"""Formats on networks that were trained here: accuracy and agreement are those that plain ONNX Runtime finds."""

from __future__ import annotations

import importlib

import numpy as np
import onnxruntime
import pandas as pd
import pytest

pytest.importorskip("torch", reason="comes with requirements-torch.txt")
pytest.importorskip("sklearn", reason="comes with requirements-torch.txt")

from common.precision.judgement.samples import Samples, divided
from tests.support.models.trained_networks import NETWORKS, TRAINED, digits, trained

STAGE = importlib.import_module("28_precision")


@pytest.mark.parametrize(("name", "least"), [("resnet", 0.97), ("mobilenet", 0.94), ("vit", 0.88)])
def test_formats_of_trained_networks(tmp_path, name, least):
    """Each network learned its task; int8 by channel keeps it, and in 4 bits it agrees less."""
    assert name in NETWORKS
    images, classes = (array[TRAINED:] for array in digits())
    network, archive = tmp_path / "net.onnx", tmp_path / "digits.npz"
    trained(name, network)
    np.savez(archive, image=images, labels=classes)
    STAGE.main(["--model", str(network), "--samples", str(archive), "--out", str(tmp_path), "--threads", "1"])
    table = pd.read_csv(tmp_path / "precision.csv").set_index(["number_format", "quantization_scheme"])
    feeds = [{"image": images[one : one + 1]} for one in range(len(images))]
    _, judging = divided(Samples(feeds, 1, "given", classes), 0)
    x = np.concatenate([run["image"] for run in judging.feeds])
    rounding = onnxruntime.SessionOptions()  # int8 kernels of a processor without VNNI saturate
    rounding.add_session_config_entry("session.disable_quant_qdq", "1")
    exact, short = (
        onnxruntime.InferenceSession(path, rounding).run(None, {"image": x})[0]
        for path in (network, tmp_path / "quantized.onnx")
    )
    accuracy = (exact.argmax(1) == judging.labels).mean()
    assert table["accuracy_share"]["fp32", "as given"] == pytest.approx(accuracy, abs=0.002)
    assert accuracy > least
    written = table[table["is_written_model"]].iloc[0]
    assert written["top1_agreement_share"] == pytest.approx((exact.argmax(1) == short.argmax(1)).mean(), abs=0.003)
    assert table["top1_agreement_share"]["int8", "per channel, min-max"] > 0.99
    assert table["format_verdict"]["bf16", "operands"] == "survives"
    assert (
        table["top1_agreement_share"]["int4", "per channel, min-max"]
        < table["top1_agreement_share"]["bf16", "operands"]
    )
