"""Generation from end to end: the tokens are those of a loop in numpy, and each has the work of its length."""

from __future__ import annotations

import importlib
import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

from common.messages.errors import CommandLineError, PipelineError
from models.__main__ import BUILDERS, save
from models.small.generative import ACTION_SIZE, ACTIONS, HIDDEN, LAYERS, VOCABULARY, WINDOW
from models.transformers.decoder import TINY
from tests.support.models.small_decoders import VOCABULARY as SMALL_VOCABULARY
from tests.support.models.small_decoders import WIDTH, small_decoder

STAGE = importlib.import_module("26_generation")
PROMPT, TOKENS = 9, 6


@pytest.fixture
def generated(tmp_path):
    """Run the stage on a model, and return its table and its document."""

    def run(name, *flags):
        save(BUILDERS[name](), tmp_path / "m.onnx")
        sizes = ("--prompt", f"{PROMPT}", "--tokens", f"{TOKENS}", "--answers", "2", "--threads", "1")
        STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *sizes, *flags])
        document = json.loads((tmp_path / "generation_summary.json").read_text(encoding="utf-8"))
        return pd.read_csv(tmp_path / "generation.csv"), document

    return run


def chosen_in_numpy(path, prompt, count):
    """Greedy decoding of the plain decoder with arrays alone: every call passes copies of the caches."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    shape = (1, TINY.groups, 0, TINY.head_size)
    caches = {one.name: np.zeros(shape, np.float32) for one in session.get_inputs() if "past" in one.name}
    fed, length, chosen = prompt, 0, []
    for _ in range(count):
        length += len(fed)
        given = {"input_ids": [fed], "attention_mask": [[1] * length], "position_ids": [[*range(length)][-len(fed) :]]}
        arrays = {name: np.array(value, np.int64) for name, value in given.items()}
        answer = dict(zip(outputs, session.run(None, {**arrays, **caches}), strict=True))
        caches = {name: answer[name.replace("past_key_values", "present")] for name in caches}
        fed = [int(answer["logits"][0, -1].argmax())]
        chosen += fed
    return chosen


def test_the_tokens_are_those_of_a_plain_loop(generated, tmp_path):
    """A cache that grows, ONNX Runtime's operators, and one buffer choose the same tokens as numpy does."""
    table, _ = generated("tiny-decoder")
    prompt = [int(token) for token in np.random.default_rng(0).integers(0, TINY.vocabulary, PROMPT)]
    expected = chosen_in_numpy(tmp_path / "m.onnx", prompt, TOKENS)
    assert len(set(expected)) > 2
    for tables in (
        table,
        generated("tiny-grouped-decoder")[0],
        generated("tiny-grouped-decoder", "--cache-room", "64")[0],
    ):
        assert [*tables["token_id"]] == expected * 2


def test_each_token_has_the_work_and_the_cache_of_its_length(generated):
    """Products by the token, scores by the valid length: a buffer of 64 has the rows of a cache that grows."""
    keys, total = TINY.groups * TINY.head_size, np.arange(PROMPT, PROMPT + TOKENS)
    layer = TINY.hidden * (2 * TINY.hidden + 2 * keys) + 3 * TINY.hidden * TINY.wide
    each = TINY.layers * layer + TINY.hidden * TINY.vocabulary
    new = np.array([PROMPT] + [1] * (TOKENS - 1))
    macs = new * (each + TINY.layers * TINY.heads * total * 2 * TINY.head_size)
    for flags in ((), ("--cache-room", "64")):
        table, summary = generated("tiny-grouped-decoder", *flags)
        last = table[table["answer_index"] == 1]
        assert [*last["macs"]] == [*macs]
        assert [*last["cache_bytes"]] == [*(TINY.layers * 2 * keys * 4 * total)]
        assert [*last["generation_phase"]] == ["prefill"] + ["decode"] * (TOKENS - 1)
        assert [*table["is_warmup"]] == [True] * TOKENS + [False] * TOKENS
        assert (summary["answer_count"], summary["prompt_token_count"]) == (1, PROMPT)
        decode = last[1:]
        rate = decode["bytes"].sum() / decode["token_us"].sum() * 1e6
        assert summary["attained_bytes_per_s"] == pytest.approx(rate)
        assert summary["tokens_per_s"] == pytest.approx(1e6 / decode["token_us"].mean())


def test_the_share_of_the_bandwidth_needs_the_bandwidth(generated):
    _, without = generated("tiny-state-space")
    assert without["memory_roof_share"] is None
    _, summary = generated("tiny-state-space", "--mem-bw", "1e10")
    assert summary["memory_roof_share"] == pytest.approx(summary["attained_bytes_per_s"] / 1e10)


@pytest.mark.parametrize(
    ("name", "room", "problem"),
    [
        ("tiny-grouped-decoder", 13, "prompt and answer take 14 tokens of cache, and a buffer has room for 13"),
        ("tiny-decoder", 64, "no operator reads how much of past_key_values.0.key is valid"),
    ],
)
def test_a_buffer_that_cannot_be_used_is_refused(generated, name, room, problem):
    with pytest.raises(PipelineError, match=problem):
        generated(name, "--cache-room", f"{room}")


def test_what_was_generated_before_a_failure_stays(generated, tmp_path):
    """The model has 512 positions: the call beyond them fails, and the tokens before it are kept."""
    with pytest.raises(PipelineError, match="ONNX Runtime fails to run it") as failed:
        generated("tiny-grouped-decoder", "--prompt", "509", "--tokens", "9", "--answers", "1")
    assert "what was generated is in" in failed.value.remedy
    assert len(pd.read_csv(tmp_path / "incomplete" / "generation.csv")) == 4


def test_each_length_is_measured_by_itself(generated, tmp_path):
    """Prefill is one call of a warm-up and one that counts; decode begins after as many tokens as are asked for."""
    phases = ("--phase", "prefill:4,7", "decode:3,20")
    table, summary = generated("tiny-grouped-decoder", *phases, "--mem-bw", "1e10", "--peak-flops", "1e11")
    calls = pd.read_csv(tmp_path / "generation_phases.csv")
    assert [*zip(calls["generation_phase"], calls["past_token_count"], calls["new_token_count"], strict=True)] == [
        ("prefill", 0, 4),
        ("prefill", 0, 7),
        ("decode", 3, 1),
        ("decode", 20, 1),
    ]
    assert [*calls["phase_call_count"]] == [1, 1, TOKENS, TOKENS]
    assert len(table) == 2 * (1 + 1 + TOKENS + TOKENS)
    assert (summary["prompt_token_count"], summary["answer_count"]) == (7, 4)
    decode = table[(table["past_token_count"] >= 20) & ~table["is_warmup"]]
    seconds = decode["token_us"].sum() / 1e6
    assert summary["memory_roof_share"] == pytest.approx(decode["bytes"].sum() / 1e10 / seconds)
    assert summary["compute_roof_share"] == pytest.approx(decode["flops"].sum() / 1e11 / seconds)
    assert summary["bound"] == "memory"
    assert (table["sampling_us"] < table["token_us"]).all()


def test_energy_of_a_token_is_power_by_its_time(generated):
    _, summary = generated("tiny-decoder", "--avg-power-w", "50")
    assert summary["joules_per_token_j"] == pytest.approx(50 / summary["tokens_per_s"])


def test_a_rolling_cache_gives_the_tokens_of_a_plain_loop(generated, tmp_path):
    """In numpy each call passes copies of what the one before returned, beyond the window."""
    table, _ = generated("tiny-rolling-decoder", "--prompt", f"{WINDOW - 2}")
    prompt = [int(token) for token in np.random.default_rng(0).integers(0, VOCABULARY, WINDOW - 2)]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    caches = {one.name: np.zeros((1, 0, HIDDEN), np.float32) for one in session.get_inputs() if "past" in one.name}
    fed, chosen = prompt, []
    for _ in range(TOKENS):
        answer = session.run(None, {"input_ids": np.array([fed]), **caches})
        named = dict(zip([one.name for one in session.get_outputs()], answer, strict=True))
        caches = {name: named[name.replace("past_key_values", "present")] for name in caches}
        fed = [int(named["logits"][0, -1].argmax())]
        chosen += fed
    assert next(iter(caches.values())).shape[1] == WINDOW
    assert [*table["token_id"]] == chosen * 2
    assert table["cache_bytes"].max() == LAYERS * 2 * HIDDEN * WINDOW * 4


def test_a_loop_of_states_takes_as_many_steps(generated):
    """A step of the action expert: 5 products of its width, attention over the prefix and itself, and both ends."""
    table, summary = generated("tiny-action-expert", "--dim", "prefix=11")
    step = LAYERS * (5 * HIDDEN * HIDDEN + 2 * (11 + ACTIONS) * HIDDEN) + 2 * ACTION_SIZE * HIDDEN
    assert [*table["macs"]] == [ACTIONS * step + HIDDEN] * 2 * TOKENS
    assert table["token_id"].isna().all()
    assert (summary["first_token_us"], summary["prompt_token_count"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "flags", "problem"),
    [
        ("tiny-action-expert", ("--dim", "prefix=3", "--phase", "decode:4"), "its states have no length"),
        ("tiny-grouped-decoder", ("--cache-room", "16", "--phase", "decode:11"), "take 17 tokens of cache"),
        ("tiny-mlp", (), "has no cache: no output is fed to an input in the next call"),
        (
            "tiny-decoder",
            ("--dim", "past=5"),
            "present.0.key cannot be fed to past_key_values.0.key: it grows, and the input takes 5 tokens",
        ),
        (
            "tiny-decoder",
            ("--cache", "past_key_values.0.key=present.1.key"),
            "present.1.key is fed to past_key_values.0.key and to past_key_values.1.key",
        ),
        ("tiny-decoder", ("--dim", "batch=0"), "a call takes no sequence"),
        ("tiny-decoder", ("--prompt", "1000000000"), "--prompt: 1000000000 tokens; give at most 1,000,000"),
        ("tiny-decoder", ("--phase", "prefill:1000000000"), "--phase: 1000000000 tokens; give at most 1,000,000"),
    ],
)
def test_lengths_that_cannot_be_measured_are_refused(generated, name, flags, problem):
    with pytest.raises(PipelineError, match=problem):
        generated(name, *flags)


def test_buffers_that_no_operator_measures_are_refused_by_the_name_of_the_flag(generated):
    with pytest.raises(PipelineError, match=r"^--cache-room: no operator reads how much"):
        generated("tiny-decoder", "--cache-room", "16")


@pytest.mark.parametrize("script", ["26_generation", "27_token_streams", "31_decode_plan"])
def test_a_script_of_decoders_asks_for_the_model(tmp_path, script):
    with pytest.raises(CommandLineError, match="--model: names no model; give an ONNX file, a folder"):
        importlib.import_module(script).main(["--out", str(tmp_path)])


def test_each_length_is_measured_once(generated, tmp_path):
    generated("tiny-decoder", "--phase", "prefill:4,4", "decode:3,3", "decode:3")
    calls = pd.read_csv(tmp_path / "generation_phases.csv")
    assert [*zip(calls["generation_phase"], calls["phase_call_count"], strict=True)] == [
        ("prefill", 1),
        ("decode", TOKENS),
    ]


def test_every_sequence_of_a_batch_gives_tokens(generated, tmp_path):
    generated("tiny-decoder", "--dim", "batch=3", "--avg-power-w", "50")
    prefill, decode = pd.read_csv(tmp_path / "generation_phases.csv").itertuples()
    assert prefill.tokens_per_s == pytest.approx(3 * PROMPT / (prefill.token_mean_us / 1e6))
    assert decode.tokens_per_s == pytest.approx(3 / (decode.token_mean_us / 1e6))
    assert decode.joules_per_token_j == pytest.approx(50 / decode.tokens_per_s)


def test_a_decoder_without_a_table_chooses_the_tokens_of_a_plain_loop(tmp_path):
    """256 rows are drawn once, and tokens share them; 02 counts the head, and 31 sends rows over the link."""
    path = tmp_path / "m.onnx"
    onnx.save(small_decoder(tokens="inputs_embeds"), path)
    common = ("--model", str(path), "--out", str(tmp_path))
    STAGE.main([*common, "--prompt", "4", "--tokens", f"{TOKENS}", "--answers", "3", "--threads", "1"])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    fed = [int(token) for token in np.random.default_rng(0).integers(0, SMALL_VOCABULARY, 4)]
    drawn = np.random.default_rng(0).standard_normal((256, WIDTH))
    cache, chosen = np.zeros((1, 0, WIDTH), np.float32), []
    for _ in range(TOKENS):
        rows = drawn[np.array(fed) % len(drawn)].astype(np.float32)
        logits, cache = session.run(None, {"inputs_embeds": rows[None], "past_key_values.0.key": cache})
        fed = [int(logits[0, -1].argmax())]
        chosen += fed
    table = pd.read_csv(tmp_path / "generation.csv")
    assert [*table["token_id"]] == chosen * 3
    assert [*table["macs"]] == [rows * WIDTH * SMALL_VOCABULARY for rows in [4, 1, 1, 1, 1, 1]] * 3
    importlib.import_module("31_decode_plan").main([*common, "--weight-format", "int8"])
    plans = pd.read_csv(tmp_path / "decode_plans.csv")
    assert {*plans[plans["decode_side"] == "card"]["token_link_bytes"]} == {WIDTH * 4 + 8}


def test_a_folder_of_optimum_that_takes_one_token_is_measured_by_its_caches(tmp_path):
    onnx.save(small_decoder(new=1), tmp_path / "decoder_with_past_model.onnx")
    (tmp_path / "encoder_model.onnx").write_bytes(b"")
    common = ("--model", str(tmp_path), "--out", str(tmp_path), "--tokens", "3", "--answers", "2", "--threads", "1")
    STAGE.main([*common, "--phase", "decode:5"])
    assert [*pd.read_csv(tmp_path / "generation.csv")["past_token_count"]] == [5, 6, 7] * 2
    with pytest.raises(
        PipelineError, match="128 tokens, and a call of the model takes one; give 1 token with --prompt"
    ):
        STAGE.main([*common])
