"""The frame of a stage: what it records, prints and spells out around its own work."""

from __future__ import annotations

import json
import re
import sys

import pytest

from common import cli
from common.artifacts.stages import STAGES
from common.cli import streams
from common.cli.texts import wording
from common.messages.errors import (
    CommandLineError,
    PipelineError,
    UnboundDimensionsError,
    UnusableValueError,
    UpstreamError,
)
from tests.support.processes.command_lines import run_program
from tests.support.tables.dag import write_executed
from tests.support.tables.stored import edges

SCRIPT = "03_merge_profile_metrics.py"


def parser() -> cli.Parser:
    parser = cli.Parser(SCRIPT, "doc")
    parser.setting("--peak-flops", "--peak", type=cli.positive_float)
    parser.setting("--mem-bw", type=cli.positive_float)
    return parser


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("give <peak_flops>", "give --peak-flops"),  # a setting of this stage: its first spelling
        ("give <avg_power_w>", "give 05_energy_estimate.py --avg-power-w"),  # of another stage
        ("<host_tables> or <host_scale>", "07_fpga_candidates.py --host-tables or --host-scale"),  # the script once
        ("rerun <host_ceilings>", "rerun 00_host_ceilings.py"),  # a table: who writes it
        ("use <out>", "use --out FOLDER"),  # a setting of every stage
        ("node <unk> of Vec<float>, <Peak_Flops>", "node <unk> of Vec<float>, <Peak_Flops>"),  # no name of ours
    ],
)
def test_names_of_quantities_and_tables_are_spelled_out(text, spelled):
    assert wording.plain(text, parser().flags) == spelled


# The stage that writes it may be given it: there the name is the flag, elsewhere the script.
BOTH = {"executed_graph"}


def test_every_setting_of_a_stage_can_be_named_by_any_room():
    for stage in STAGES.values():
        for setting in set(stage.settings) - BOTH:
            assert wording.plain(f"<{setting}>").endswith(wording.flag(setting))


def test_no_artifact_and_no_setting_share_a_name():
    """One name in angle brackets has one meaning."""
    settings = {setting for stage in STAGES.values() for setting in stage.settings}
    assert settings & {name for stage in STAGES.values() for name in stage.writes} == BOTH


# --- the frame ------------------------------------------------------------------------------------------------------


def run(out, body, *flags):
    with cli.stage(parser(), ["--out", str(out), *flags]) as stage:
        body(stage)


def test_what_a_stage_writes_says_how_it_was_made(tmp_path, capsys):
    def body(stage):
        stage.note("no peak was measured: give <peak_flops>")
        with stage.writing() as transaction:
            transaction.add_table("executed_edges", edges("a", "b"))
        stage.show("the table")

    run(tmp_path, body, "--mem-bw", "5e10")
    printed = capsys.readouterr()
    assert printed.out == "the table\n"
    assert printed.err.splitlines() == [
        "note: no peak was measured: give --peak-flops",
        f"wrote {tmp_path / 'executed_edges.csv'} (2 rows)",
    ]
    record = json.loads((tmp_path / "executed_edges.meta.json").read_text())
    assert record["notes"] == ["no peak was measured: give --peak-flops"]
    assert record["settings"]["mem_bw"] == {"value": 5e10, "from": "flag"}
    assert (record["stage"], record["command"].split()[0]) == (SCRIPT, SCRIPT)


def test_a_note_is_printed_with_labels_and_recorded_with_full_names(tmp_path, capsys):
    def body(stage):
        stage.note("/relu/Relu_output_0 is slow")
        stage.print_notes_as(lambda note: note.replace("/relu/Relu_output_0", "conv1"))
        with stage.writing() as transaction:
            transaction.add_table("executed_edges", edges("a"))

    run(tmp_path, body)
    assert capsys.readouterr().err.startswith("note: conv1 is slow\n")
    assert json.loads((tmp_path / "executed_edges.meta.json").read_text())["notes"] == ["/relu/Relu_output_0 is slow"]


def test_what_the_tables_lack_is_passed_on_to_what_is_made_of_them(tmp_path):
    def first(stage):
        with stage.writing() as transaction:
            transaction.add_table("executed_edges", edges("a"))
            transaction.mark_incomplete(["gpu-0 was lost"], "executed_edges")

    def second(stage):
        stage.tables.table("executed_edges")
        with stage.writing() as transaction:
            transaction.add_table("executed_edges", edges("b"))

    run(tmp_path, first)
    run(tmp_path, second)
    record = json.loads((tmp_path / "executed_edges.meta.json").read_text())
    assert record["incomplete"] == ["made from executed_edges.csv: gpu-0 was lost"]


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (
            UnusableValueError("peak_flops", "3 is below 7", "give 7 or more"),
            "--peak-flops: 3 is below 7; give 7 or more",
            2,
        ),
        (UnusableValueError("clock_mhz", "0 is no clock"), "clock-mhz: 0 is no clock", 2),
        (PipelineError("x", "fails", "rerun <op_latency>"), "x: fails; rerun 01_profile_onnx.py", 1),
        (UpstreamError("x.csv", "is empty", "run <op_edges>"), "x.csv: is empty; run 02_shapes_flops_bytes.py", 3),
    ],
)
def test_an_error_of_a_room_is_spelled_out_and_nothing_more_is_printed(tmp_path, capsys, error, line, code):
    def body(stage):
        stage.note("a note")
        raise error

    with pytest.raises(type(error)) as raised:
        run(tmp_path, body)
    assert (str(raised.value), raised.value.exit_code) == (line, code)
    assert capsys.readouterr() == ("", "")


DENIALS = [
    (MemoryError(), "memory: too little is free; "),
    (ImportError("no module", name="pandas"), "pandas: cannot be imported (no module); "),
    (OSError(5, "Input/output error", "a.csv"), "a.csv: the system denies it (Input/output error)"),
    (OSError(24, "Too many open files"), "this host: the system denies it (Too many open files)"),
    (RuntimeError("can't start new thread"), "this host: the system denies it (can't start new thread)"),
    (RuntimeError("can't allocate read lock"), "this host: the system denies it (can't allocate read lock)"),
]


@pytest.mark.parametrize(("error", "line"), DENIALS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("has_written", [False, True])
def test_what_the_host_denies_is_one_line_which_says_whether_the_tables_are_complete(
    tmp_path, error, line, has_written
):
    def main(argv):
        with cli.stage(parser(), argv) as stage:
            if has_written:
                with stage.writing() as transaction:
                    transaction.add_rows("executed_edges", [])
            raise error

    done = run_program(SCRIPT, main, "--out", tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith(f"{SCRIPT}: error: {line}")
    assert ("the tables are complete" in done.stderr) == has_written


def test_the_model_is_that_of_the_tables_read_or_the_one_named(tmp_path):
    write_executed(tmp_path)

    def reads(stage):
        stage.tables.table("executed_edges")
        assert stage.record.model_id

    def names(stage):
        stage.set_model("ab" * 32, "m.onnx", {"batch": 3})
        assert (stage.record.model_path, stage.record.dimensions) == ("m.onnx", {"batch": 3})

    run(tmp_path, reads)
    run(tmp_path, names)


def test_a_long_note_is_wrapped_on_a_terminal_and_one_line_elsewhere(monkeypatch):
    note = "note: " + "a note of many words, " * 20
    assert streams.note_lines(note) == [note]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    lines = streams.note_lines(note)
    assert len(lines) > 4 and max(map(len, lines)) <= 80
    assert all(line.startswith("  ") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == note.strip()


def test_a_stage_that_is_only_checked_writes_nothing(tmp_path):
    parser = cli.Parser("04_critical_path.py", "doc")
    words = ["--check", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended, cli.stage(parser, words) as running, running.writing():
        pytest.fail("it writes")
    assert ended.value.code == 0
    assert not (tmp_path / "out").exists()


def test_tables_that_are_still_to_be_made_are_no_concern_of_a_check(tmp_path):
    parser = cli.Parser("04_critical_path.py", "doc")
    with pytest.raises(SystemExit) as ended, cli.stage(parser, ["--check", "--out", str(tmp_path)]) as running:
        running.tables.rows("op_roofline")
    assert ended.value.code == 0


WRONG = ("--precision", "int6")


def test_an_unbound_dimension_names_the_whole_line_of_make(monkeypatch, tmp_path):
    parser = cli.Parser("02_shapes_flops_bytes.py", "doc")
    parser.shared("--dim")
    words = ["--dim", "batch=2", "--out", str(tmp_path)]
    error = UnboundDimensionsError("m.onnx: dimension 'seq' not bound", "add for example <dim> seq=128", {"seq": 128})
    with pytest.raises(UnboundDimensionsError, match="add for example --dim seq=128"), cli.stage(parser, words):
        raise error
    monkeypatch.setenv("MAKE_LINE", "make run MODEL=m.onnx")
    with pytest.raises(UnboundDimensionsError) as raised, cli.stage(parser, words):
        raise error
    assert str(raised.value).endswith('not bound; run for example `make run MODEL=m.onnx DIM="batch=2 seq=128"`')


def test_an_error_names_the_variables_of_make_if_make_runs_the_stage(monkeypatch, tmp_path):
    parser = cli.Parser("01_profile_onnx.py", "doc")
    for flag in ("--threads", "--from-trace", "--seed"):
        parser.setting(flag)
    error = UnusableValueError(
        "threads", "is not given, <from_trace> has none, nor <seed>", "give the count; <ceilings>"
    )
    monkeypatch.setenv("MAKE_VARIABLES", "from_trace=TRACE threads=THREADS ceilings=CEILINGS")
    monkeypatch.delenv("MAKE_LINE", raising=False)
    with (
        pytest.raises(UnusableValueError, match=r"^--threads: .*, --from-trace"),
        cli.stage(parser, ["--out", str(tmp_path)]),
    ):
        raise error
    monkeypatch.setenv("MAKE_LINE", "make report")
    with pytest.raises(UnusableValueError) as raised, cli.stage(parser, ["--out", str(tmp_path)]):
        raise UnusableValueError(*error.quantities, error.problem, error.remedy)
    assert str(raised.value).startswith("THREADS: is not given, TRACE has none, nor --seed; give the count; 03_merge")


def test_a_value_that_is_unusable_names_the_variable_of_make(monkeypatch):
    parser = cli.Parser("07_fpga_candidates.py", "doc")
    parser.setting("--precision", choices=("fp32", "int8"))
    monkeypatch.setenv("MAKE_VARIABLES", "precision=PRECISION")
    monkeypatch.delenv("MAKE_LINE", raising=False)
    with pytest.raises(CommandLineError, match=r"^command line: argument --precision: "), cli.stage(parser, WRONG):
        pass
    monkeypatch.setenv("MAKE_LINE", "make run")
    with pytest.raises(CommandLineError, match=r"^PRECISION: invalid choice: 'int6' "), cli.stage(parser, WRONG):
        pass


@pytest.mark.parametrize(("word", "hint"), [("--wat-if", "did you mean --what-if? "), ("--zzz", ""), ("word", "")])
def test_a_misspelt_flag_gets_its_likely_spelling(word, hint):
    parser = cli.Parser("04_critical_path.py", "doc")
    parser.setting("--what-if")
    with pytest.raises(CommandLineError, match=re.escape(f"arguments: {word}; {hint}see 04_critical_path.py --help")):
        parser.parse_args([word])


def test_a_flag_of_another_script_is_named_with_that_script():
    parser = cli.Parser("04_critical_path.py", "doc")
    parser.elsewhere = {"--board": "07_fpga_candidates.py has it"}
    with pytest.raises(CommandLineError, match=r"arguments: --board u280; 07_fpga_candidates\.py has it; see 04_"):
        parser.parse_args(["--board", "u280"])


def test_an_error_is_cut_to_a_length_that_somebody_reads():
    error = PipelineError("m.onnx", "names " + ", ".join(f"dimension_{number}" for number in range(1000)), "add one")
    assert len(str(error)) < 700
    assert str(error).startswith("m.onnx: names dimension_0")
    assert str(error).endswith("dimension_999; add one")


def spoken(capsys, out, *words, notes):
    with cli.stage(cli.Parser("07_fpga_candidates.py", "doc"), ["--out", str(out), *words]) as running:
        running.note(*notes)
    return capsys.readouterr().err.splitlines()


def test_the_notes_that_matter_most_are_printed_and_the_others_counted(tmp_path, capsys):
    notes = ["p99 left empty: few runs", "the link is slow", "energy counts the card", "not judged: rerun", "the clock"]
    lines = spoken(capsys, tmp_path, notes=notes)
    assert lines[:2] == ["note: not judged: rerun", "note: the link is slow"]
    assert lines[2].startswith("3 more notes")
    assert len(lines) == 3
    ranked = [line.removeprefix("note: ") for line in spoken(capsys, tmp_path, "--all-notes", notes=notes)]
    assert ranked == ["not judged: rerun", "the link is slow", "the clock", "energy counts the card", notes[0]]


def test_few_notes_are_all_printed(tmp_path, capsys):
    assert len(spoken(capsys, tmp_path, notes=["a", "b", "c"])) == 3
