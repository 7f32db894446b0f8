"""A folder that the user named is written whole or not at all, and never over what somebody changed in it."""

import hashlib
import json
from pathlib import Path

import pytest

from common.artifacts.whole_folder import LISTING, whole_folder
from common.messages.errors import PipelineError


def write(folder, **texts):
    with whole_folder(folder, "hand_off") as files:
        files.update(texts)


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != LISTING}


def test_all_files_stand_with_their_digests(tmp_path):
    with whole_folder(tmp_path / "new" / "folder", "hand_off") as files:
        files.update({"a": "1\n", "b/c": "2\n"})
    assert (tmp_path / "new/folder/b/c").read_text() == "2\n"
    listed = json.loads((tmp_path / "new/folder" / LISTING).read_text())
    assert listed == {name: hashlib.sha256(text).hexdigest() for name, text in (("a", b"1\n"), ("b/c", b"2\n"))}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["folder"]


def test_an_earlier_folder_is_replaced_as_a_whole(tmp_path):
    write(tmp_path / "x", a="1", b="2")
    write(tmp_path / "x", a="3")
    assert content(tmp_path / "x") == {"a": "3"}
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_empty_folder_may_be_there(tmp_path):
    (tmp_path / "x").mkdir()
    write(tmp_path / "x", a="1")
    assert content(tmp_path / "x") == {"a": "1"}


@pytest.mark.parametrize("name", ["a", "mine", LISTING])
def test_what_somebody_changed_is_refused_before_the_work_and_stays(tmp_path, name):
    write(tmp_path / "x", a="1")
    (tmp_path / "x" / name).write_text("{}")
    with pytest.raises(PipelineError, match="is not as an earlier run left it; give <hand_off> a new folder"):
        write(tmp_path / "x", a="2")
    assert (tmp_path / "x" / name).read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_that_is_gone_is_a_change(tmp_path):
    write(tmp_path / "x", a="1", b="2")
    (tmp_path / "x" / "b").unlink()
    with pytest.raises(PipelineError, match="b is not as an earlier run left it"):
        write(tmp_path / "x", a="2")


def test_a_block_that_fails_leaves_the_earlier_folder(tmp_path):
    write(tmp_path / "x", a="1")
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "x", "hand_off") as files:
        files["a"] = "2"
        raise KeyboardInterrupt
    assert content(tmp_path / "x") == {"a": "1"}
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("folder", [".", "..", "../..", "/"])
def test_a_folder_without_a_name_is_refused(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineError, match="has no name of its own"):
        write(Path(folder), a="1")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(PipelineError, match="is not a folder"):
        write(tmp_path / "x", a="1")
    assert (tmp_path / "x").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="cannot be written"):
        write(tmp_path / "file" / "x", a="1")
