"""YAML files: whatever a file holds, it is plain data or one clear line."""

import os
import re
from pathlib import Path

import pytest

from common.files.yaml_file import load_yaml
from common.messages.errors import ConfigurationError


@pytest.fixture
def load(tmp_path):
    def load_text(content):
        path = tmp_path / "own.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_yaml(path)

    return load_text


def test_plain_data(load):
    text = "a: 7\nb: [1.5, true, null, text]\nc: {d: 2026-02-30, e: &x 3.0, f: *x}\n2: 'two'\n"
    assert load(text) == {
        "a": 7,
        "b": [1.5, True, None, "text"],
        "c": {"d": "2026-02-30", "e": 3.0, "f": 3.0},
        2: "two",
    }
    assert load("") == {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a: !!int x", "'x' is not of type int"),
        ("a: !!bool x", "'x' is not of type bool"),
        ("a: !!float x", "'x' is not of type float"),
        ("a: !!map x", "expected a mapping node"),
        ("a: !!seq x", "expected a sequence node"),
        ("a: !!str [x]", "expected a scalar node"),
        ("? [x]\n: 7", "unhashable"),
        ("a: !!timestamp x", "could not determine a constructor"),
        ("a: !!binary x", "could not determine a constructor"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("a: " + "7" * 4990, "…777"),
        ("a: " + "7" * 150, "is too long"),
        ("a: " + "[" * 2000, "YAML"),
        ("a: " + "[" * 200_000, "brackets within too many brackets"),
        ("- " * 200_000, "a line that is too long"),
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("a: {b: 1, 'b': 2}", "key 'b' is given twice"),
        ("[1]", "is not a mapping"),
        (b"\xff\xfea: 1", "is not a text in UTF-8"),
        (b"a: caf\xe9", "is not a text in UTF-8"),
        (b"\x00", "not YAML"),
        ("x" * 1_000_001, "is larger than 1,000,000 bytes"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_short_line(load, content, problem):
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as caught:
        load(content)
    line = str(caught.value)
    assert "own.yaml: " in line and line.isprintable() and len(line) < 600


def test_a_merge_is_not_followed(load):
    assert load("a: &x {b: 7}\nc: {<<: *x}")["c"] == {"<<": {"b": 7}}


def test_aliases_of_aliases_are_not_unfolded(load):
    pairs = zip("abcdefgh", "bcdefghi", strict=True)
    levels = "\n".join(f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in pairs)
    loaded = load(f"a: &a [x]\n{levels}")
    assert loaded["i"][8][8] is loaded["h"][8]


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    cases = [
        (tmp_path / "pipe.yaml", "is a pipe"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "gone.yaml", "cannot be read (No such file or directory)"),
        (Path("/dev/zero"), "is larger than 1,000,000 bytes"),
    ]
    for path, problem in cases:
        with pytest.raises(ConfigurationError, match=re.escape(f"{path}: {problem}")):
            load_yaml(path)
