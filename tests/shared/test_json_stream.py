"""Long lists of JSON, read in pieces of any size, against Python's own parser."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.files import json_stream
from common.files.json_stream import CutShortError, list_items
from common.messages.errors import PipelineError
from tests.support.paths import ROOT

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def items(path, key="list"):
    return list(list_items(path, key, "a list"))


@pytest.mark.slow
@given(
    st.lists(VALUES, max_size=5),
    st.dictionaries(st.text(max_size=4).filter(lambda key: key != "list"), VALUES, max_size=3),
    st.integers(1, 40),
    st.sampled_from((None, 1)),
    st.booleans(),
)
def test_items_are_those_of_pythons_parser(tmp_path_factory, values, beside, size, indent, ascii_only):
    path = tmp_path_factory.mktemp("json") / "list.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK", size)
        for content in (values, {**beside, "list": values, "after": 1}):
            path.write_text(json.dumps(content, indent=indent, ensure_ascii=ascii_only), encoding="utf-8")
            assert items(path) == values


@given(st.integers(0, 60))
def test_a_file_that_ends_early_gives_its_whole_items_first(tmp_path_factory, length):
    text = '{"head": [1, "x"], "list": [{"a": 1.25}, {"b": "é"}, 3]}'
    path = tmp_path_factory.mktemp("json") / "list.json"
    path.write_text(text[:length], encoding="utf-8")
    found = []
    try:
        for item in list_items(path, "list", "a list"):
            found.append(item)
    except CutShortError:
        assert text[:length].rfind("]", 20) < 0
    else:
        assert length >= text.index("3]") + 2
    assert found == [{"a": 1.25}, {"b": "é"}, 3][: len(found)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"3", "has no list 'list'"),
        (b"{}", "has no list 'list'"),
        (b'{"list": 3}', "has no list 'list'"),
        (b"[1 2]", "is no JSON from character 3 on"),
        (b'{"a" 1}', "is no JSON from character 5 on"),
        (b"[Infinity]", "Infinity is no number"),
        (b"[" * 10**5, "is no JSON from character 1 on"),
        (b"[%s]" % (b"1" * 5000), "is no JSON from character 1 on"),
        ("[1]".encode("utf-16"), "is UTF-16 text"),
        (b'["\xff"]', "is no UTF-8 text"),
    ],
)
def test_files_that_hold_no_such_list(tmp_path, content, problem):
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=problem) as caught:
        items(path)
    assert "\n" not in str(caught.value)


def test_one_endless_value_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "MOST_VALUE", 1000)
    monkeypatch.setattr(json_stream, "CHUNK", 100)
    path = tmp_path / "long.json"
    path.write_text('["' + "x" * 5000)
    with pytest.raises(PipelineError, match=r"one value is longer than 1,000 characters"):
        items(path)


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "long.json"
    event = '{"name": "x", "args": {"shape": [1, 2, 3], "text": "' + "y" * 400 + '"}}'
    with path.open("w") as file:
        file.write('{"list": [' + event)
        for _ in range(400):
            file.write(f", {event}" * 1000)
        file.write("]}")
    program = (
        "import resource, sys; from pathlib import Path; from common.files.json_stream import list_items;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "count = sum(1 for _ in list_items(Path(sys.argv[1]), 'list', ''));"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, path], cwd=ROOT, capture_output=True, text=True, check=True)
    count, grown_kib = map(int, done.stdout.split())
    assert count == 400_001
    assert path.stat().st_size > 150 * 2**20
    assert grown_kib < 30 * 2**10
