"""Files that are none of what they should be: each reader refuses them in one line that begins with the path."""

import os

import pytest

from common.messages.errors import PipelineError
from common.npu.op_trace import read_op_trace
from common.npu.qhas import read_qhas
from common.npu.qnn_csv import read_qnn_csv
from common.npu.report import read_baseline
from common.npu.schematic import read_schematic
from tests.support.profiles.npu_profiles import DATA, write_qhas

READERS = {
    "profile.csv": read_qnn_csv,
    "schematic.bin": read_schematic,
    "qnn_op_trace.json": read_op_trace,
    "qhas.json": read_qhas,
    "npu_summary.json": lambda path: read_baseline(path.parent),
}


def refusal(name, path):
    with pytest.raises(PipelineError) as error:
        READERS[name](path)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < 500
    return text


@pytest.mark.parametrize("name", READERS)
def test_a_gigabyte(name, tmp_path):
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(2**30)
    assert "is larger than" in refusal(name, path)


CONTENTS = {
    "nothing": b"",
    "zeros": bytes(4096),
    "UTF-16": "Msg Timestamp,Message".encode("utf-16"),
    "UTF-16 without a mark": '{"data": 1}'.encode("utf-16-le"),
    "Latin-1": '{"é": 1}'.encode("latin-1"),
    "one long line": b"," * 300_000,
    "brackets": b"[" * 300_000,
    "a number": b"7",
    "null": b"null",
    "another language": "エラー\n".encode() * 40,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", CONTENTS)
def test_another_content(name, kind, tmp_path):
    path = tmp_path / name
    path.write_bytes(CONTENTS[kind])
    refusal(name, path)


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file(name, tmp_path):
    path = tmp_path / name
    assert "cannot be read" in refusal(name, path)
    os.mkfifo(path)
    assert "is not a file" in refusal(name, path)  # without waiting for a writer
    path.unlink()
    path.mkdir()
    assert "is not a file" in refusal(name, path)


@pytest.mark.parametrize("name", READERS)
def test_a_recorded_file_that_was_cut_anywhere(name, tmp_path):
    """It is refused, or it was cut where nothing is lost."""
    path = tmp_path / name
    if name == "npu_summary.json":
        content = b'{"execution_summary": {"a": 1}, "resource_utilization": {}}\n'
    elif name == "qhas.json":
        content = write_qhas(path).read_bytes()
    else:
        content = (DATA / "fp16" / name).read_bytes()
    for size in range(0, len(content) - 1, max(1, len(content) // 61)):
        path.write_bytes(content[:size])
        try:
            READERS[name](path)
        except PipelineError as error:
            assert "\n" not in str(error)
        else:
            assert name == "profile.csv"
            assert content[:size].rstrip().endswith((b"QNN (execute) time", b"QNN (execute) time,"))
