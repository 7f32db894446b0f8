"""Decoders as ``torch.onnx`` exports them, by phase: MACs and caches by closed forms, and tokens of the loop."""

from __future__ import annotations

import importlib
import json

import numpy as np
import onnxruntime as ort
import pandas as pd
import pytest

pytest.importorskip("torch", reason="comes with requirements-torch.txt")
pytest.importorskip("transformers", reason="comes with requirements-torch.txt")

import sympy

from common.generation.decoder import decoder_of
from common.generation.phases import DECODE, PREFILL, WHOLE, phase_rows, point_at
from common.onnx_graph.load import load_model
from tests.exports.architectures import ARCHITECTURES
from tests.exports.exporters import EXPORTERS

DECODERS = [name for name, one in ARCHITECTURES.items() if "past" in one.closed_form]
POINTS = [(PREFILL, 5), (PREFILL, 11), (DECODE, 1), (DECODE, 37)]
pytestmark = [
    pytest.mark.parametrize("architecture", DECODERS),
    pytest.mark.parametrize("exporter", EXPORTERS),
]


def loaded(path):
    model = load_model(path, {}, symbolic=True)
    return decoder_of(model, {}, {})


def test_each_phase_has_the_work_of_its_closed_form(exported, architecture, exporter):
    about = ARCHITECTURES[architecture]
    decoder = loaded(exported(architecture, "full", exporter))
    points = [point_at(*point) for point in POINTS]
    rows = [row for row in phase_rows(decoder, points, ()) if row["model_part"] == WHOLE]
    for (phase, length), row in zip(POINTS, rows, strict=True):
        past, new = (0, length) if phase == PREFILL else (length, 1)
        assert row["generation_phase"] == phase
        assert row["macs"] == about.macs("full", {"batch": 1, "seq": new, "past": past})
        assert row["cache_bytes"] == about.sizes["full"].cache_bytes(1, past + new)


def test_each_phase_is_a_polynomial_of_its_length(exported, architecture, exporter):
    about = ARCHITECTURES[architecture]
    decoder = loaded(exported(architecture, "full", exporter))
    rows = phase_rows(decoder, [point_at(PREFILL, 5), point_at(DECODE, 37)], ())
    prefill, decode = (sympy.sympify(row["phase_macs_expression"]) for row in rows if row["model_part"] == WHOLE)
    (new,), (past,) = prefill.free_symbols, decode.free_symbols
    assert sympy.expand(prefill - about.macs("full", {"batch": 1, "seq": new, "past": 0})) == 0
    assert sympy.expand(decode - about.macs("full", {"batch": 1, "seq": 1, "past": past})) == 0


def test_the_loop_gives_the_tokens_of_a_loop_without_a_cache(exported, architecture, exporter, tmp_path):
    """26 feeds caches back; the other loop gives the whole text to each call, and no past."""
    path, prompt, count = exported(architecture, "small", exporter), 5, 6
    flags = ("--prompt", f"{prompt}", "--tokens", f"{count}", "--answers", "1", "--threads", "1", "--seed", "3")
    generate = importlib.import_module("26_generation")
    assert generate.main(["--model", str(path), "--out", str(tmp_path), *flags]) == 0
    chosen = pd.read_csv(tmp_path / "generation.csv")["token_id"].tolist()
    assert chosen == without_cache(path, prompt, count)
    summary = json.loads((tmp_path / "generation_summary.json").read_text(encoding="utf-8"))
    assert (summary["prompt_token_count"], summary["answer_token_count"]) == (prompt, count)


def without_cache(path, prompt, count):
    """The tokens of a loop that computes the whole text for each of them."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    vocabulary = session.get_outputs()[0].shape[-1]
    text = np.random.default_rng(3).integers(0, vocabulary, prompt).tolist()
    still = loaded(path).still_values(3)  # the frames of an encoder, as 26 draws them
    for _ in range(count):
        logits = session.run(["logits"], {**whole_text(session, text), **still})[0]
        text.append(int(logits[0, -1].argmax()))
    return text[prompt:]


def whole_text(session, text):
    """The inputs of a call for a text without a past."""
    feeds = {}
    for value in session.get_inputs():
        if value.name == "input_ids":
            feeds[value.name] = np.array([text], np.int64)
        elif value.name == "attention_mask":
            feeds[value.name] = np.ones((1, len(text)), np.int64)
        elif value.name == "position_ids":
            feeds[value.name] = np.arange(len(text), dtype=np.int64)[None]
        elif "past" in value.shape:
            shape = [{"batch": 1, "past": 0}.get(dim, dim) for dim in value.shape]
            feeds[value.name] = np.zeros(shape, np.float32)
    return feeds
