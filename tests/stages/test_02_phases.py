"""02 on a decoder: phases at the lengths that are asked for and at those that are bound; none of other models."""

from __future__ import annotations

import importlib
import json

import pandas as pd
import pytest

from common.messages.errors import PipelineError
from models.__main__ import BUILDERS, save

STAGE = importlib.import_module("02_shapes_flops_bytes")
BOUND = ("--dim", "batch=1", "--dim", "seq=1", "--dim", "past=9")


@pytest.fixture
def counted(tmp_path):
    def run(name, *flags):
        save(BUILDERS[name](), tmp_path / "m.onnx")
        STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *flags])
        return pd.read_csv(tmp_path / "phase_work.csv")

    return run


def points(table):
    whole = table[table["model_part"] == "model"]
    return [*zip(whole["generation_phase"], whole["past_token_count"], whole["new_token_count"], strict=True)]


def test_lengths_that_are_asked_for_come_beside_those_that_are_bound(counted, tmp_path):
    table = counted("tiny-decoder", *BOUND, "--phase", "prefill:3", "decode:5,9")
    assert points(table) == [("prefill", 0, 3), ("decode", 5, 1), ("decode", 9, 1)]
    sidecar = json.loads((tmp_path / "phase_work.meta.json").read_text(encoding="utf-8"))
    assert (sidecar["swept"], sidecar["dimensions"]) == (["past", "seq"], {"batch": 1})


def test_the_work_of_a_bound_phase_is_that_of_its_nodes(counted, tmp_path):
    table = counted("tiny-decoder", *BOUND)
    nodes = pd.read_csv(tmp_path / "op_metrics.csv")
    for part, rows in nodes.groupby("model_part"):
        row = table[table["model_part"] == part].iloc[0]
        for figure in ("macs", "flops", "weight_bytes", "bytes"):
            assert row[figure] == rows[figure].sum(), (part, figure)


def test_another_model_has_no_phases_and_replaces_those_of_the_one_before(counted):
    assert not counted("tiny-decoder", "--phase", "decode:5").empty
    assert counted("tiny-mlp").empty


def test_no_flag_changes_which_tables_are_written(counted, tmp_path):
    """Without a length the table has no rows, but is there."""
    assert counted("tiny-decoder").empty
    before = sorted(path.name for path in tmp_path.iterdir())
    assert not counted("tiny-decoder", "--phase", "decode:5").empty
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_states_without_tokens_are_phases_only_if_that_is_asked_for(counted):
    """The name of an output alone does not make a loop of an image that comes back."""
    assert counted("tiny-action-expert", "--dim", "prefix=3").empty
    assert points(counted("tiny-action-expert", "--dim", "prefix=3", "--phase", "decode:1")) == [("decode", 1, 1)]


def test_figures_that_no_cell_holds_are_empty_with_a_reason(counted, capsys):
    table = counted("tiny-decoder", "--phase", "prefill:1000000000000")
    whole = table[table["model_part"] == "model"].iloc[0]
    assert pd.isna(whole["macs"])
    assert whole["phase_macs_expression"]
    noted = capsys.readouterr().err
    assert "of prefill of 1,000,000,000,000 tokens exceed 2^63, the most that a table holds" in noted
    assert "MACs" in noted
    counted("tiny-decoder", "--phase", "prefill:3")
    assert "exceed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "flags", "problem"),
    [
        ("tiny-mlp", ("--phase", "decode:5"), "has no cache: no output is fed to an input in the next call"),
        ("tiny-speech-decoder", ("--phase", "decode:5"), "frames not bound"),
        ("tiny-decoder", ("--phase", "decode:0"), "is not a whole number of at least 1"),
        ("tiny-decoder", ("--phase", "train:5"), "is not prefill:N,N,... or decode:N,N,..."),
        ("tiny-decoder", ("--phase", "decode:5", "--cache", "input_ids=logits"), "logits cannot be fed to input_ids"),
        (
            "tiny-rolling-decoder",
            ("--dim", "batch=1", "--dim", "seq=1", "--dim", "past=200"),
            "past=200: the cache holds a window of 128 tokens",
        ),
    ],
)
def test_phases_that_there_are_not_are_refused(counted, name, flags, problem):
    with pytest.raises(PipelineError, match=problem):
        counted(name, *flags)
