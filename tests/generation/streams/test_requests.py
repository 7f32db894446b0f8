"""Traces of requests: times and lengths, and lines that are none."""

from __future__ import annotations

import pytest

from common.generation.streams.engine import StreamRequest
from common.generation.streams.requests import trace_requests
from common.messages.errors import PipelineError


def test_a_trace(tmp_path):
    (tmp_path / "t.csv").write_text("time,prompt,answer\n# a comment\n10.5,7,3\n11,9,1\n", encoding="utf-8")
    assert trace_requests(tmp_path / "t.csv") == [StreamRequest(0, 7, 3), StreamRequest(500_000_000, 9, 1)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no request"),
        ("0,1\n", "line 1 has 2 columns instead of 3"),
        ("0,1,0\n", "line 1 is no request"),
        ("0,x,1\n", "line 1 is no request"),
        ("0,999999999,1\n", "line 1 is no request"),
        ("nan,1,1\n0,1,1\n", "holds no request|line 1 is no request"),
        ("2,1,1\n1,1,1\n", "line 2: time goes back to 1 s"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path, text, problem):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(PipelineError, match=problem):
        trace_requests(tmp_path / "t.csv")


def test_a_trace_that_is_not_there(tmp_path):
    with pytest.raises(PipelineError, match="cannot be read"):
        trace_requests(tmp_path / "t.csv")
