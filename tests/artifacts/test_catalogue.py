"""The declarations agree with themselves, with the scripts and with the documentation made from them."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.columns import COLUMNS, UNITS, Column, declare
from common.artifacts.generated.describe import describe, describe_all, describe_stage
from common.artifacts.generated.metrics import EXPORTED, describe_metrics, exported_columns
from common.artifacts.stages import STAGES, WRITER
from common.latency.steady_state import Kind
from common.metrics.metric_names import metric_name
from common.os_events.disturbance import Cause
from common.os_events.events import EventKind
from tests.support.paths import ROOT

USED = {column.name for artifact in ARTIFACTS.values() for column in artifact.columns}
# Numbers that have no unit in their name: counts whose name is their unit, and the terms of Amdahl's law, whose unit
# is a column of its own.
UNITLESS = {
    *("request_length", "padded_length", "max_abs_error", "max_rel_error", "cosine_error"),
    *("threads", "inter_op_threads"),
    "groups",
    "pessimistic",
    "likely",
    "optimistic",
    "value",
    "instructions_per_cycle",
}
UNITLESS |= {"thread_id", "other_process_id", "crowding_process_id", "npu_op_id", "token_id", "soc_model", "max_error"}
UNITLESS |= {"seed"}
UNITLESS |= {"adjusted_p_value", "cliffs_delta", "baseline_value", "candidate_value", "information_value"}
UNITLESS |= {"figure_value", "history_run", "level_p_value", "level_value"}
UNITLESS |= {"m", "k", "n"}  # the extents of a matrix product, by the names that everybody gives them


def test_every_column_is_used():
    assert set(COLUMNS) == USED


@pytest.mark.slow
@pytest.mark.parametrize(
    "column", [c for c in COLUMNS.values() if c.kind in ("integer", "number")], ids=lambda c: c.name
)
def test_a_number_ends_in_its_unit(column):
    assert column.unit or column.name in UNITLESS


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS.values(), ids=lambda c: c.name)
def test_a_description_is_a_sentence_without_its_stop(column):
    assert column.description
    assert not column.description[0].islower() or column.description.startswith("min(")
    assert not column.description.endswith(".")


def test_no_column_carries_a_percentage_or_is_just_a_node():
    assert not [name for name in COLUMNS if "percent" in name or name == "node"]


def test_shares_and_fractions_are_numbers_and_flags_are_booleans():
    for column in COLUMNS.values():
        if column.name.endswith(("_share", "_fraction")):
            assert column.kind == "number", column.name
        if column.name.startswith(("is_", "has_")):
            assert column.kind == "boolean", column.name


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("arithmetic_intensity_flop_per_byte", "FLOP/byte"),
        ("peak_flop_per_s", "FLOP/s"),
        ("efficiency_flop_per_s_per_w", "FLOP/s/W"),
        ("memory_bytes_per_s", "byte/s"),
        ("duration_s", "s"),
        ("p50_us", "µs"),
        ("bytes", "byte"),
        ("macs", "MAC"),
        ("flops", "FLOP"),
        ("executed_node", ""),
    ],
)
def test_the_longest_suffix_is_the_unit(name, unit):
    assert Column(name, "number", "").unit == unit


def test_a_suffix_never_hides_a_longer_one():
    suffixes = list(UNITS)
    for index, suffix in enumerate(suffixes):
        assert not [later for later in suffixes[index + 1 :] if later.endswith(suffix)]


def test_a_column_is_declared_once():
    with pytest.raises(ValueError, match="op_type is declared twice"):
        declare("op_type", "string", "Again")
    assert COLUMNS["op_type"].description != "Again"


def test_every_artifact_has_one_writer():
    written = [name for stage in STAGES.values() for name in stage.writes]
    assert sorted(written) == sorted(ARTIFACTS)
    assert set(WRITER) == set(ARTIFACTS)


def test_no_two_artifacts_share_a_file_or_a_sidecar():
    stems = [Path(artifact.file).stem for artifact in ARTIFACTS.values() if artifact.form != "page"]
    assert len(set(stems)) == len(stems)
    assert {Path(artifact.file).stem for artifact in ARTIFACTS.values() if artifact.form == "page"} <= set(stems)
    files = [artifact.file for artifact in ARTIFACTS.values()]
    assert len(set(files)) == len(files)


def test_a_stage_reads_only_what_an_earlier_stage_writes():
    """The order of STAGES is the order of `make run`: 06 draws what 07 writes."""
    known = set()
    for stage in STAGES.values():
        assert set(stage.reads) <= known, stage.script
        known |= set(stage.writes)


def test_keys_come_first_and_are_never_empty():
    for artifact in ARTIFACTS.values():
        assert tuple(column.name for column in artifact.columns[: len(artifact.key)]) == artifact.key
        keys = artifact.columns[: len(artifact.key)]
        # fpga_candidates leaves `kernel` empty where none is chosen, load_requests the batch where there is none;
        # in offload_plan and load_batches they are the key.
        assert not [
            column.name for column in keys if column.nullable and column.name not in ("kernel", "load_batch_index")
        ]
        names = [column.name for column in artifact.columns]
        assert len(set(names)) == len(names), artifact.name


def test_forms_and_suffixes_agree():
    for artifact in ARTIFACTS.values():
        suffix = {"table": ".csv", "document": ".json"}.get(artifact.form)
        stem = "precision" if artifact.name == "format_precision" else artifact.name  # <precision> is a flag
        assert suffix is None or artifact.file == f"{stem}{suffix}"
        assert bool(artifact.columns) == bool(suffix)


# --- documentation --------------------------------------------------------------------------------------------------


def test_the_documentation_is_what_the_declarations_say():
    """`python -m common.artifacts > docs/ARTIFACTS.md` makes it again."""
    ran = subprocess.run(
        [sys.executable, "-m", "common.artifacts", "docs"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    )
    assert ran.stdout == describe_all()
    assert (ROOT / "docs" / "ARTIFACTS.md").read_text(encoding="utf-8") == describe_all()


def test_the_names_of_metrics_are_documented_as_the_columns_declare_them():
    """`make docs` makes it again."""
    assert (ROOT / "docs" / "METRICS.md").read_text(encoding="utf-8") == describe_metrics()


@pytest.mark.parametrize("document", EXPORTED)
def test_no_two_columns_of_a_document_are_one_metric(document):
    names = [metric_name(column.name)[0] for column in exported_columns(document)]
    assert names
    assert len(names) == len(set(names))


def test_the_index_names_writer_and_readers():
    row = next(line for line in describe_all().splitlines() if line.startswith("| [`op_schedule.csv`]"))
    assert row == "| [`op_schedule.csv`](#op_schedulecsv) | `04_critical_path.py` | `07`, `24`, `06` |"


def test_a_section_has_a_row_per_column():
    text = describe(ARTIFACTS["executed_edges"])
    assert "Key: `tensor`, `producer`, `consumer`." in text
    assert "| `tensor_bytes` | integer | byte | yes | Stored size of the tensor. |" in text.splitlines()
    assert "One of `compute`, `memory`." in describe(ARTIFACTS["op_roofline"])
    assert "| column |" not in describe(ARTIFACTS["executed_graph"])


def test_a_stage_describes_what_it_writes():
    text = describe_stage("04_critical_path.py")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## critical_path.csv",
        "## op_schedule.csv",
    ]


@pytest.mark.parametrize(
    ("column", "words"),
    [("event_kind", EventKind), ("disturbance_cause", Cause), ("steady_state", Kind)],
)
def test_a_column_of_words_allows_those_that_its_room_writes(column, words):
    assert COLUMNS[column].allowed == get_args(words)
