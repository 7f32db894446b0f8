"""A decoder from its measured tokens to its plan on a card, through the real command lines."""

from __future__ import annotations

import importlib
import json

import pandas as pd
import pytest

from common.messages.errors import UnusableValueError, UpstreamError
from common.messages.host_doubts import BUSY
from models.__main__ import BUILDERS, save
from tests.support.paths import ROOT

GENERATE, STAGE = (importlib.import_module(name) for name in ("26_generation", "31_decode_plan"))
PROMPT, TOKENS = 9, 6
SIZES = {"tiny-speech-decoder": ("--dim", "frames=12"), "tiny-action-expert": ("--dim", "prefix=3")}


@pytest.fixture
def planned(tmp_path, capsys):
    """Generate with a model and plan it; return the tables, the document and what was printed."""

    def run(name, *flags, measured=()):
        save(BUILDERS[name](), tmp_path / "m.onnx")
        common = ("--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path))
        sizes = ("--prompt", f"{PROMPT}", "--tokens", f"{TOKENS}", "--answers", "3", "--threads", "1")
        GENERATE.main([*common, *sizes, *measured])
        capsys.readouterr()
        STAGE.main([*common, *flags])
        tables = [pd.read_csv(tmp_path / f"{table}.csv") for table in ("decode_plans", "decode_lengths")]
        return *tables, json.loads((tmp_path / "decode_summary.json").read_text("utf-8")), capsys.readouterr()

    return run


def test_a_decoder_is_planned_in_each_format_with_each_cut(planned, tmp_path):
    plans, lengths, summary, printed = planned(
        "tiny-grouped-decoder", measured=("--mem-bw", "1e10", "--peak-flops", "1e15")
    )
    assert len(plans) == 9
    assert list(dict.fromkeys(plans["weight_format"])) == ["bf16", "int8", "int4"]
    sizes = plans.groupby("weight_format")["card_resident_bytes"].first()
    assert sizes["bf16"] > sizes["int8"] > sizes["int4"]
    assert plans["is_best_plan"].sum() == 1
    tokens = pd.read_csv(tmp_path / "generation.csv")
    counted = tokens[~tokens["is_warmup"]]
    decode = counted[counted["generation_phase"] == "decode"]["token_us"]
    host = counted[counted["generation_phase"] == "prefill"]["token_us"].mean() + (TOKENS - 1) * decode.mean()
    assert summary["host_answer_us"] == pytest.approx(host)  # a line and a mean have the same sum over the same tokens
    assert (summary["planned_prompt_count"], summary["planned_output_count"]) == (PROMPT, TOKENS)
    assert lengths["past_token_count"].max() == PROMPT + TOKENS - 2
    assert (lengths["memory_roof_us"] < lengths["planned_token_likely_us"]).all()
    on_card = plans["prefill_side"] == "card"
    engines = plans["prefill_engines"].fillna("")
    assert (
        engines.str.contains("systolic-.*-int8 attention-.* rowwise-") == (on_card & (plans["weight_format"] != "bf16"))
    ).all()
    assert engines[on_card & (plans["weight_format"] == "bf16")].str.contains("systolic-.*-bf16").all()
    assert "prompt on the card: " in printed.out
    regions = plans["prefill_regions"].fillna("").str.split()
    assert (regions.str.len() == engines.str.split().str.len()).all()
    assert {*regions.explode().dropna()} <= {"SLR0", "SLR1", "SLR2", "board"}
    decode = plans["decode_engine"].fillna("")
    on_channels = "streaming-31ch-" + plans["weight_format"]
    assert (decode == on_channels.where(plans["decode_side"] == "card", "")).all()
    assert "tokens on the card: on streaming-31ch-" in printed.out
    assert "the time of published decoders" not in printed.err
    assert "tokens/s" in printed.out
    assert "% of memory bandwidth" in printed.out
    assert "16 bytes cross the link for each" in printed.err


def test_a_longer_answer_than_the_measured_one_is_said(planned):
    *_, summary, printed = planned("tiny-decoder", "--prompt", "32", "--tokens", "64", "--weight-format", "int8")
    assert (summary["planned_prompt_count"], summary["planned_output_count"]) == (32, 64)
    assert "measured up to 13 tokens in the caches, and the answer ends at 94" in printed.err
    assert summary["weight_format"] == "int8"
    assert summary["measured_length_count"] == PROMPT + TOKENS - 2


@pytest.mark.parametrize(("prompt", "is_noted"), [(4, True), (PROMPT, False), (10, True)])
def test_a_prompt_of_another_length_than_the_measured_ones_is_said(planned, prompt, is_noted):
    *_, summary, printed = planned("tiny-decoder", "--prompt", f"{prompt}")
    assert (f"prompts of {PROMPT} tokens, and this one has {prompt}: its time" in printed.err) == is_noted
    assert ("at least that of a token" in printed.err) == (prompt < PROMPT)
    assert summary["planned_prompt_count"] == prompt


def test_a_board_without_an_array_for_a_prompt_has_that_of_published_decoders(planned):
    """The vck190 computes int8 in AI engines."""
    plans, _, _, printed = planned("tiny-decoder", "--board", "vck190", "--weight-format", "int8")
    assert plans["prefill_engines"].isna().all()
    note = "a prompt on the vck190 in int8 has the time of published decoders: no array of this project is for it"
    assert note in " ".join(printed.err.split())
    assert "prompt on the card" not in printed.out


def test_what_does_not_fit_is_refused_in_one_line(planned, tmp_path):
    text = (ROOT / "configs/boards/kv260.yaml").read_text("utf-8")
    assert "value: 4294967296" in text
    (tmp_path / "tiny.yaml").write_text(text.replace("value: 4294967296", "value: 65536"), "utf-8")
    with pytest.raises(UnusableValueError, match=r"weights in int4 and caches take .* GB, and the .* has") as refused:
        planned("tiny-decoder", "--board", str(tmp_path / "tiny.yaml"), "--prompt", "300")
    assert "a shorter answer" in refused.value.remedy


def test_tokens_of_a_busy_host_give_no_verdict(planned, monkeypatch):
    busy = f"{BUSY}: other work took 2.0 of its 4 processors during the runs; stop it"
    monkeypatch.setattr(GENERATE.OtherWork, "notes", lambda *_: [busy])
    plans, _, summary, printed = planned("tiny-decoder")
    assert {*plans["verdict"]} == {"not judged"}
    assert summary["doubts"] == [busy.partition(";")[0]]
    assert "2.0 of its 4 processors during the runs: no plan is judged" in printed.err


def test_one_counted_answer_gives_no_verdict(planned, monkeypatch):
    monkeypatch.setattr(GENERATE.OtherWork, "notes", lambda *_: [])
    plans, _, summary, _ = planned("tiny-decoder", measured=("--answers", "2"))
    assert {*plans["verdict"]} == {"not judged"}
    assert summary["doubts"] == ["one counted answer gives the host's times no interval"]


def changed_record(folder, **fields):
    """Change fields in the sidecar of 26's summary."""
    sidecar = folder / "generation_summary.meta.json"
    record = json.loads(sidecar.read_text("utf-8"))
    sidecar.write_text(json.dumps({**record, **fields}), "utf-8")


@pytest.mark.parametrize(
    ("board", "processor", "is_judged"),
    [
        *((board, "Intel(R) Xeon(R) Processor", False) for board in ("kv260", "zcu102", "ultra96", "vck190")),
        ("zcu104", "", False),
        ("zcu104", "Arm Neoverse-N1", False),
        ("zcu104", "Arm Cortex-A53", True),
        ("u280", "Intel(R) Xeon(R) Processor", True),
    ],
)
def test_a_board_with_a_processor_of_its_own_needs_the_times_of_that_processor(
    planned, tmp_path, capsys, board, processor, is_judged
):
    planned("tiny-decoder")
    changed_record(tmp_path, host={"cpu_model": processor}, notes=[])
    STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), "--board", board])
    verdicts = pd.read_csv(tmp_path / "decode_plans.csv")["verdict"]
    summary = json.loads((tmp_path / "decode_summary.json").read_text("utf-8"))
    printed = capsys.readouterr().err
    assert (verdicts == "not judged for this host").all() == (not is_judged)
    assert len(summary["doubts"]) == (not is_judged)
    assert (f"the host of a {board} is its own" in printed) == (not is_judged)
    assert ("run 26_generation.py there" in printed) == (not is_judged)


def test_the_measured_tokens_must_be_there(tmp_path):
    save(BUILDERS["tiny-decoder"](), tmp_path / "m.onnx")
    with pytest.raises(UpstreamError, match="not found"):
        STAGE.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path)])


def test_another_model_than_the_measured_one_is_refused(planned, tmp_path):
    planned("tiny-decoder")
    save(BUILDERS["tiny-grouped-decoder"](), tmp_path / "other.onnx")
    with pytest.raises(UpstreamError, match=r"of the model .*m\.onnx, not of .*other\.onnx"):
        STAGE.main(["--model", str(tmp_path / "other.onnx"), "--out", str(tmp_path)])


def test_a_loop_of_states_has_steps_alone(planned, tmp_path, capsys):
    """No token crosses the link, a prompt is refused, and so are more steps than anyone plans."""
    prefix = ("--dim", "prefix=3")
    plans, _, summary, printed = planned("tiny-action-expert", *prefix, measured=prefix)
    assert summary["token_link_bytes"] == 0
    assert "chooses the token" not in printed.err
    on_card = plans[(plans["prefill_side"] == "card") & (plans["decode_side"] == "card")]
    assert (on_card["answer_link_bytes"] > 0).all()
    common = ("--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *prefix)
    for flags, problem in (
        (("--prompt", "7"), "its states have no prompt"),
        (("--tokens", "1000000000"), "1000000000 tokens"),
    ):
        with pytest.raises(UnusableValueError, match=problem):
            STAGE.main([*common, *flags])


@pytest.mark.parametrize("batch", [0, 4])
def test_several_sequences_at_a_time_are_refused(planned, tmp_path, batch):
    planned("tiny-decoder")
    common = ("--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path))
    with pytest.raises(UnusableValueError, match=f"a call takes {batch} sequences, and a plan is for one answer"):
        STAGE.main([*common, "--dim", f"batch={batch}"])


def test_other_sizes_than_the_measured_ones_are_refused(planned, tmp_path):
    """An encoder of 24 frames has twice the keys: the times of 12 frames say nothing about it."""
    given = ("--dim", "frames=12")
    planned("tiny-speech-decoder", *given, measured=given)
    common = ("--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path))
    with pytest.raises(UpstreamError, match="of the dimensions frames=12, not of frames=24"):
        STAGE.main([*common, "--dim", "frames=24"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "tiny-expert-decoder",
        "tiny-packed-decoder",
        "tiny-state-space",
        "tiny-speech-decoder",
        "tiny-rolling-decoder",
        "tiny-action-expert",
    ],
)
def test_every_kind_of_decoder_is_planned(planned, name):
    sizes = SIZES.get(name, ())
    plans, *_ = planned(name, *sizes, measured=sizes)
    assert plans["fits_memory"].all()
    assert (plans["planned_answer_likely_us"] > 0).all()
