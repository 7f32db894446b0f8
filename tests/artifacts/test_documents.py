"""Documents: every field against its declaration, without a table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from common.artifacts.checks import documents
from common.artifacts.checks.documents import require_document
from common.artifacts.columns import Column
from common.messages.errors import PipelineError
from tests.support.paths import ROOT

FIELDS = {
    "name": Column("name", "string", "", allowed=("a", "b")),
    "note": Column("note", "string", "", nullable=True, allowed=("c",)),
    "share": Column("share", "number", "", minimum=0.0),
    "count": Column("count", "integer", "", nullable=True, minimum=1),
    "is_sound": Column("is_sound", "boolean", ""),
    "dimensions": Column("dimensions", "mapping", ""),
    "nodes": Column("nodes", "names", "", nullable=True),
}
SOUND = {
    "name": "a",
    "note": "",
    "share": 0.5,
    "count": 7,
    "is_sound": False,
    "dimensions": {"N": 1},
    "nodes": ["x"],
}


class Declared:
    file, columns = "facts.json", tuple(FIELDS.values())


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    monkeypatch.setattr(documents, "ARTIFACTS", {"facts": Declared})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"note": None, "count": None, "nodes": []},
        {"share": 0},
        {"share": 10**20},
        {"count": 7.0},
        {"count": 2**63 - 1},
        {"dimensions": {}},
    ],
)
def test_a_document_as_declared(changes):
    require_document("facts", SOUND | changes)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("name", "c", ": 'c' is not one of a, b"),
        ("name", 5, " is not of kind string (5)"),
        ("note", "a", ": 'a' is not one of c,"),
        ("share", -0.1, ": -0.1 is not at least 0"),
        ("share", "0.5", " is not of kind number ('0.5')"),
        ("share", True, " is not of kind number (True)"),
        ("share", None, ": a cell is empty"),
        ("share", float("nan"), " is not of kind number (nan)"),
        ("share", float("inf"), " is not of kind number (inf)"),
        ("share", 10**400, " is not of kind number ("),
        ("count", 7.5, " is not of kind integer (7.5)"),
        ("count", 2**63, " is not of kind integer (9223372036854775808)"),
        ("count", 0, ": 0 is not at least 1"),
        ("is_sound", 1, " is not of kind boolean (1)"),
        ("is_sound", None, ": a cell is empty"),
        ("dimensions", [], " is not of kind mapping ([])"),
        ("dimensions", None, " is not of kind mapping (None)"),
        ("nodes", [1], " is not of kind names ([1])"),
    ],
)
def test_a_field_that_is_not_as_declared(field, value, problem):
    with pytest.raises(PipelineError) as refused:
        require_document("facts", SOUND | {field: value})
    assert str(refused.value).startswith(f"facts.json: column {field}{problem}")


def test_fields_that_are_missing_or_unknown():
    rest = {name: value for name, value in SOUND.items() if name != "share"}
    with pytest.raises(PipelineError, match="the table lacks share and does not know sahre"):
        require_document("facts", rest | {"sahre": 1})
    with pytest.raises(PipelineError, match="is no JSON object"):
        require_document("facts", [SOUND])


@pytest.mark.slow
def test_a_stage_that_has_no_table_spares_what_tables_take():
    check = "import sys; import common.cli, common.artifacts.transaction; print({'pandas', 'pandera'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
