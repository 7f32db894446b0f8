"""Token streams from end to end: every request is answered with its tokens, and what cannot be served is refused."""

from __future__ import annotations

import importlib
import json

import pandas as pd
import pytest

from common.messages.errors import PipelineError
from models.__main__ import BUILDERS, save

STAGE = importlib.import_module("27_token_streams")


@pytest.fixture
def loaded(tmp_path):
    def run(name, *flags):
        save(BUILDERS[name](), tmp_path / "m.onnx")
        (tmp_path / "trace.csv").write_text("0,4,3\n0,9,1\n0.001,2,5\n", encoding="utf-8")
        common = ("--replay", str(tmp_path / "trace.csv"), "--threads", "1")
        STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *common, *flags])
        document = json.loads((tmp_path / "stream_summary.json").read_text(encoding="utf-8"))
        return pd.read_csv(tmp_path / "stream_requests.csv"), pd.read_csv(tmp_path / "stream_tokens.csv"), document

    return run


@pytest.mark.parametrize(
    ("name", "flags", "is_batched"),
    [
        ("tiny-decoder", ("--batching", "static"), False),
        ("tiny-grouped-decoder", ("--cache-room", "16"), True),
        ("tiny-state-space", ("--in-flight", "1"), False),
    ],
)
def test_every_request_has_its_tokens(loaded, name, flags, is_batched):
    requests, tokens, summary = loaded(name, *flags)
    assert [*requests["input_token_count"]] == [4, 9, 2]
    assert [*requests["output_token_count"]] == [3, 1, 5]
    assert [*tokens.groupby("request_index").size()] == [3, 1, 5]
    assert (summary["is_batched"], summary["sent_count"], summary["completed_count"]) == (is_batched, 3, 3)
    last_s = tokens["ended_us"].max() / 1e6
    assert summary["output_tokens_per_s"] == pytest.approx(9 / last_s)
    assert (requests["time_to_first_token_us"] <= requests["request_latency_us"]).all()


def test_too_little_goodput_is_exit_code_4(tmp_path, loaded, capsys):
    loaded("tiny-decoder")
    flags = ("--replay", str(tmp_path / "trace.csv"), "--threads", "1", "--min-goodput", "1e9")
    assert STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *flags]) == 4
    assert "--min-goodput is 1e+09" in capsys.readouterr().err
    record = json.loads((tmp_path / "stream_summary.meta.json").read_text(encoding="utf-8"))
    assert any("--min-goodput is 1e+09" in note for note in record["notes"])
    assert STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *flags[:-1], "1e-9"]) == 0


@pytest.mark.parametrize(
    ("name", "flags", "problem"),
    [
        ("tiny-mlp", (), "has no cache"),
        ("tiny-decoder", ("--cache-room", "16"), "no operator reads how much of past_key_values.0.key is valid"),
        ("tiny-grouped-decoder", ("--cache-room", "8"), "take 9 tokens of cache, and a buffer has room for 8"),
        ("tiny-action-expert", ("--dim", "prefix=3"), "takes no tokens"),
        ("tiny-decoder", ("--rate", "3"), "--rate: has no effect with --replay"),
        ("tiny-decoder", ("--output-tokens", "7"), "--output-tokens: has no effect with --replay"),
    ],
)
def test_what_cannot_be_served_is_refused(loaded, name, flags, problem):
    with pytest.raises(PipelineError, match=problem):
        loaded(name, *flags)


@pytest.fixture
def by_rate(tmp_path):
    def run(*flags):
        save(BUILDERS["tiny-grouped-decoder"](), tmp_path / "m.onnx")
        common = ("--rate", "50", "--duration", "500ms", "--threads", "1", "--input-tokens", "8")
        STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *common, *flags])
        return json.loads((tmp_path / "stream_summary.json").read_text(encoding="utf-8"))

    return run


def test_answers_of_one_token_have_no_time_between_tokens(by_rate, capsys):
    """The buffers have room for the prompt alone, so the warm-up may not be longer than the load."""
    summary = by_rate("--output-tokens", "1", "--cache-room", "8")
    assert summary["completed_count"] == summary["sent_count"] > 0
    assert summary["inter_token_p50_us"] is None and summary["time_to_first_token_p50_us"] is not None
    assert "time to first token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--input-tokens", "0"), "--input-tokens: '0' is no distribution"),
        (("--output-tokens", "-4"), "--output-tokens: '-4' is no distribution"),
        (("--output-tokens", "uniform:0,5"), "--output-tokens: 'uniform:0,5' is not within 1"),
        (("--input-tokens", "1000000000000"), "--input-tokens: 1000000000000 tokens; give at most 1,000,000"),
        (("--input-tokens", "9" * 5000), "--input-tokens: 9+.*give at most 1,000,000"),
        (("--dim", "batch=2"), "--dim: a call takes 2 sequences, and a stream is one"),
    ],
)
def test_lengths_that_are_none_are_refused(by_rate, flags, problem):
    with pytest.raises(PipelineError, match=problem):
        by_rate(*flags)
