"""An earlier summary: every figure that either knows is compared, and what makes the comparison doubtful is said."""

import json

import pytest

from common.messages.errors import PipelineError
from common.npu.report import read_baseline, since_baseline


def summary(execution=None, resources=None, **facts):
    same = {"model": "m.onnx", "is_emulated": False, "soc_models": [57]}
    return {"execution_summary": execution or {}, "resource_utilization": resources or {}, **same, **facts}


def test_every_figure_that_either_knows():
    before = summary({"total_inference_time_ms": 13.0, "gone": 2, "never": None}, {"dram_read_bytes": 0})
    now = summary({"total_inference_time_ms": 12.5, "never": None}, {"dram_read_bytes": 7, "new": 3})
    changes = {row["figure"]: row for row in since_baseline(before, now)["changes"]}
    assert [*changes] == ["total_inference_time_ms", "gone", "dram_read_bytes", "new"]
    assert changes["total_inference_time_ms"]["change_share"] == pytest.approx(-0.5 / 13)
    assert (changes["gone"]["before"], changes["gone"]["now"]) == (2, None)
    assert (changes["new"]["before"], changes["new"]["now"]) == (None, 3)
    assert [changes[name]["change_share"] for name in ("gone", "dram_read_bytes", "new")] == [None] * 3


def test_other_profiles_are_named():
    before, now = summary(is_emulated=True, model="n.onnx"), summary(soc_models=[])
    assert since_baseline(before, now)["doubts"] == [
        "the baseline has model n.onnx, this profile m.onnx",
        "the baseline has is_emulated True, this profile False",
    ]
    assert since_baseline(before, before)["doubts"] == []


REFUSED = {
    "nothing": (None, r"npu_summary.json: cannot be read \(No such file or directory\); give a folder that holds"),
    "another object": ("{}", r"has no object 'execution_summary'"),
    "no number": (json.dumps(summary({"total_inference_time_ms": "12"})), r"total_inference_time_ms is '12'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_summary_is_refused(tmp_path, case):
    text, message = REFUSED[case]
    if text is not None:
        (tmp_path / "npu_summary.json").write_text(text)
    with pytest.raises(PipelineError, match=message) as error:
        read_baseline(tmp_path)
    assert "\n" not in str(error.value)
