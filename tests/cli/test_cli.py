"""Flags, precedence, streams and exit codes, in process and as a process."""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common import cli
from common.artifacts.journal import STAGING
from common.cli import models, streams
from common.messages.errors import CommandLineError, ConfigurationError, PipelineError, UpstreamError
from common.process.interrupts import INTERRUPTED
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.tables.dag import write_executed

SCRIPT = "04_critical_path.py"  # a script that exists: the configuration knows the others by their files


def parser():
    made = cli.Parser(SCRIPT, "What it does: 100 % of it.\n\nEXAMPLE\n    as it stands")
    made.setting("--runs", type=cli.positive_int, default=7, metavar="N", help="how often")
    made.setting("--level", choices=("basic", "all"), default="all", help="how far")
    made.setting("--dim", type=cli.binding, action="append", default=[], help="bind")
    made.setting("--label", help="any text")
    made.setting("--avg-power-w", "--avg_power_w", type=cli.positive_float, help="watts")
    made.setting("--strict", action="store_true", default=False, help="be strict")
    return made


@pytest.fixture
def parse(tmp_path):
    """Parse flags below a file of settings with these lines for the script."""

    def parse_with(*flags, section=""):
        config = tmp_path / "own.ini"
        config.write_text(f"[04_critical_path]\n{section}\n" if section else "", encoding="utf-8")
        return cli.parse(parser(), ["--config", str(config), *flags])

    return parse_with


# --- precedence -----------------------------------------------------------------------------------------------------


def test_flag_then_configuration_then_default(parse):
    everything = parse("--runs", "3", section="runs = 5\nlabel = mine")
    assert (everything.runs, everything.label, everything.level) == (3, "mine", "all")
    origins = {name: everything.origins[name] for name in ("runs", "label", "level")}
    assert origins == {"runs": "flag", "label": "own.ini", "level": "default"}


def test_a_flag_that_repeats_the_default_is_a_flag(parse):
    assert parse("--runs", "7", section="runs = 5").record()["runs"] == {"value": 7, "from": "flag"}


def test_the_record_is_plain(parse):
    record = parse("--dim", "N=3", "--out", "some/where").record()
    assert record["out"] == {"value": "some/where", "from": "flag"}
    assert json.loads(json.dumps(record))["dim"] == {"value": [["N", 3]], "from": "flag"}
    assert record["avg_power_w"] == {"value": None, "from": "default"}


def test_defaults_of_a_file_fill_in_what_nothing_gives_and_say_so(parse):
    given = parse("--runs", "7")
    filled = given.with_defaults({"runs": 11, "avg_power_w": 13.0}, "fpga.yaml")
    assert (filled.runs, filled.avg_power_w) == (7, 13.0)
    assert filled.record()["runs"] == {"value": 7, "from": "flag"}
    assert filled.record()["avg_power_w"] == {"value": 13.0, "from": "fpga.yaml"}
    assert filled.command == given.command
    assert given.record()["avg_power_w"] == {"value": None, "from": "default"}


def test_the_command_can_be_typed_again(parse, tmp_path):
    settings = parse("--label", "two words")
    assert settings.command == f"{SCRIPT} --config {tmp_path / 'own.ini'} --label 'two words'"


def test_a_setting_that_is_none():
    with pytest.raises(AttributeError, match="speed"):
        _ = cli.Settings({"runs": 3}, {"runs": "flag"}, "x").speed


def test_both_spellings_of_a_flag(parse):
    assert parse("--avg_power_w", "65.0").avg_power_w == parse("--avg-power-w", "65").avg_power_w == 65.0


def test_the_configuration_that_is_in_the_repository_is_one():
    settings = cli.parse(parser(), [])
    assert settings.config == cli.DEFAULT_CONFIG
    assert set(settings.origins.values()) <= {"default", "settings.ini"}


# --- values of the configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("runs = 5", "runs", 5),
        ("runs=5  # it's enough", "runs", 5),
        ("level = basic", "level", "basic"),
        ("dim =\n  N=3\n  # a comment\n\tM=5", "dim", [("N", 3), ("M", 5)]),
        ("dim = N=3", "dim", [("N", 3)]),
        ("dim =", "dim", []),
        ("label = 5", "label", "5"),
        ("label = a#b; %c", "label", "a#b; %c"),
        ("avg-power-w = 6.5e1", "avg_power_w", 65.0),
        ("avg_power_w = 65", "avg_power_w", 65.0),
        ("strict = true", "strict", True),
        ("strict = false", "strict", False),
        ("out = elsewhere", "out", Path("elsewhere")),
    ],
)
def test_a_configured_value_is_read_as_its_flag_reads_it(parse, section, name, value):
    assert parse(section=section).values[name] == value


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("runs = many", r"own\.ini: runs: 'many' is not a whole number of at least 1"),
        ("runs = 0", r"own\.ini: runs: '0' is not a whole number of at least 1"),
        ("runs = 2.5", r"runs: '2\.5' is not a whole number"),
        ("runs = true", r"runs: 'true' is not a whole number"),
        ("runs =", r"runs: '' is not a whole number"),
        ("runs = 3\n  5", r"runs: takes one value, and has several lines"),
        ("label = a\0b", r"label: no text of a command line holds a NUL"),
        ("level = some", r"level: 'some' is not one of basic, all"),
        ("dim =\n  N=3\n  M", r"dim: 'M' is not NAME=NUMBER"),
        ("dim = N", r"dim: 'N' is not NAME=NUMBER"),
        ("strict = yes", r"strict: 'yes' is not true or false"),
        ("strict = 1", r"strict: '1' is not true or false"),
        ("speed = 3", r"unknown key 'speed' for 04_critical_path\.py; it takes avg_power_w, dim, label, level, out"),
        ("config = other.ini", r"unknown key 'config'"),
        ("describe = true", r"unknown key 'describe'"),
        ("3 = 5", r"unknown key '3'"),
        ("runs = 3\nruns = 5", r"own\.ini: is no file of settings \(line 3: a second runs\)"),
        ("avg-power-w = 3\navg_power_w = 3", r"line 3: a second avg_power_w"),
    ],
)
def test_a_configured_value_that_is_none(parse, section, message):
    with pytest.raises(ConfigurationError, match=message):
        parse(section=section)


def test_a_misspelt_key_of_another_stage_is_refused_by_every_stage(tmp_path):
    """``make`` would otherwise measure for minutes before the stage that has the section complains."""
    config = tmp_path / "own.ini"
    config.write_text("[01_profile_onnx]\nwarmup = 3\nsensor-rate-hz = 7\nout = x\n[07_fpga_candidates]\nbord = u50\n")
    done = run_stage("04_critical_path.py", "--out", tmp_path, "--config", config)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"04_critical_path.py: error: {config}: unknown key 'bord' for 07_fpga_candidates.py;"
    )


def test_the_settings_that_a_stage_declares_may_be_configured_for_it(tmp_path):
    config = tmp_path / "own.ini"
    config.write_text("[01_profile_onnx]\nwarmup = 3\nsensor-rate-hz = 7\nout = x\nquiet = true\n")
    assert run_stage("04_critical_path.py", "--out", tmp_path, "--config", config).returncode == 3  # no tables


@pytest.mark.parametrize("value", ["2", "1.01", "0", "-0.5"])
@pytest.mark.parametrize("name", ["--min-share", "--min-fused-share"])
def test_a_share_is_at_most_one(tmp_path, name, value):
    done = run_stage("07_fpga_candidates.py", "--out", tmp_path, f"{name}={value}")
    assert (done.returncode, "is not a " in done.stderr) == (2, True)
    assert run_stage("07_fpga_candidates.py", "--out", tmp_path, f"{name}=1").returncode == 3  # no tables


def test_a_folder_in_the_place_of_the_model_is_called_one(tmp_path):
    done = run_stage("02_shapes_flops_bytes.py", "--out", tmp_path, "--model", tmp_path)
    assert (done.returncode, f"{tmp_path}: a folder without a decoder of GenAI or optimum" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[04_kritical_path]", r"own\.ini: unknown script '04_kritical_path'; it takes .*04_critical_path"),
        ("[stages]", r"unknown script 'stages'"),
        (
            "stages:\n  04_critical_path:\n    runs: 3",
            r"is no file of settings \(line 1: 'stages:' is below no section",
        ),
        ("runs = 3", r"line 1: 'runs = 3' is below no section"),
        ("[04_critical_path]\n[04_critical_path]", r"line 2: a second \[04_critical_path\]"),
        ("[04_critical_path]\nruns", r"line 2: no NAME = VALUE\); it takes lines NAME = VALUE below \[SCRIPT\]"),
        ("[04_critical_path]\n= 3", r"line 2: no NAME = VALUE"),
        ("[DEFAULT]\nruns = 3", r"unknown script 'DEFAULT'"),
        ("a: \x00", r"own\.ini: is no file of settings"),
    ],
)
def test_a_configuration_that_is_none(tmp_path, text, message):
    (tmp_path / "own.ini").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        cli.parse(parser(), ["--config", str(tmp_path / "own.ini")])


def test_a_configuration_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigurationError, match=r"gone\.ini: cannot be read \(No such file or directory\)"):
        cli.parse(parser(), ["--config", str(tmp_path / "gone.ini")])
    (tmp_path / "latin.ini").write_bytes(b"a: \xe9\xff")
    with pytest.raises(ConfigurationError, match=r"latin\.ini: is not a text in UTF-8"):
        cli.parse(parser(), ["--config", str(tmp_path / "latin.ini")])


def test_an_empty_configuration_is_one(parse):
    assert parse().runs == 7


@pytest.mark.parametrize("sections", ["# nothing", "[04_critical_path]", "[model net.onnx]\n"])
def test_empty_sections(tmp_path, sections):
    (tmp_path / "own.ini").write_text(sections, encoding="utf-8")
    assert cli.parse(parser(), ["--config", str(tmp_path / "own.ini")]).runs == 7


# --- flags ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--speed", "3"], "command line: unrecognized arguments: --speed 3; see 04_critical_path.py --help"),
        (["--run", "3"], "unrecognized arguments: --run 3"),  # no abbreviations: a new flag would break them
        (["--runs"], "argument --runs: expected one argument"),
        (["--runs", "-1"], "argument --runs: '-1' is not a whole number of at least 1"),
        (["--runs", "1e3"], "'1e3' is not a whole number"),
        (["--level", "some"], "argument --level: invalid choice: 'some'"),
        (["--avg-power-w", "nan"], "'nan' is not a finite number above 0"),
        (["--avg-power-w", "0"], "'0' is not a finite number above 0"),
        (["--avg-power-w", "inf"], "'inf' is not a finite number above 0"),
        (["--avg-power-w", "-5"], "'-5' is not a finite number above 0"),
        (["--avg-power-w", "watt"], "'watt' is not a finite number above 0"),
        (["--dim", "N"], "'N' is not NAME=NUMBER"),
        (["--dim", "N=3", "--dim", "M=3", "--dim", "N=5"], "--dim N: is given more than once; give it once"),
        (["--out", ""], "argument --out: the path is empty"),
        (["--dim", "N=-1"], "'-1' is not a whole number of at least 0"),
    ],
)
def test_a_flag_that_cannot_be_used(flags, message):
    with pytest.raises(CommandLineError) as caught:
        cli.parse(parser(), flags)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_types_of_flags():
    assert cli.non_negative_int("0") == 0
    assert cli.binding("a=b=3") == ("a=b", 3)  # a dimension's name may hold a sign, its size not
    assert cli.assignment("x=a=b") == ("x", "a=b")  # a file's name may
    assert cli.factor("conv=1=2.5") == ("conv=1", 2.5)
    for text in ("x", "=a", "x="):
        with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=VALUE"):
            cli.assignment(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=NUMBER"):
        cli.factor("=3")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("500ms", 0.5), ("10m", 600), ("1h", 3600), ("2.5", 2.5), (" 1.5 h ", 5400), ("1e3ms", 1)],
)
def test_a_duration_is_in_seconds(text, seconds):
    assert cli.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "0", "0s", "-3s", "3d", "3sm", "1m30s", "infs", "nan", "3 min", "1hms"])
def test_what_is_no_duration(text):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        cli.duration(text)
    assert str(caught.value) == f"{text!r} is not a duration above 0, such as 30s, 500ms, 10m or 1h"


def test_a_working_folder_that_was_deleted(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(PipelineError, match=r"^the working folder: does not exist any more; change to another one$"):
        cli.parse(parser(), [])


def test_the_whole_help_is_the_docstring_and_the_defaults(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.parse(parser(), ["--help-all"])
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert "What it does: 100 % of it.\n\nEXAMPLE\n    as it stands" in text
    assert "how often (default: 7)" in text
    assert "any text\n" in text  # no default, none shown


def test_describe_prints_the_tables_and_exits(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.parse(parser(), ["--describe"])
    assert caught.value.code == 0
    assert "## op_schedule.csv" in capsys.readouterr().out


# --- models ---------------------------------------------------------------------------------------------------------


def test_a_model_is_a_path_before_it_is_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "ROOT", tmp_path / "root")
    (tmp_path / "root" / "models").mkdir(parents=True)
    named = tmp_path / "root" / "models" / "net.onnx"
    named.write_bytes(b"")
    assert cli.model_path("net.onnx") == named
    (tmp_path / "net.onnx").write_bytes(b"")
    assert cli.model_path("net.onnx") == Path("net.onnx")
    long = "gone" * 1000  # longer than a file's name can be
    for gone, named in (("gone.onnx", "gone.onnx"), (long, f"{long[:67]}…{long[-132:]}")):
        with pytest.raises(PipelineError, match=rf"^{named}: no such model file"):
            cli.model_path(gone)


@pytest.mark.parametrize(
    ("names", "decoder"),
    [
        (("model.onnx", "encoder_model.onnx"), "model.onnx"),
        (("decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"), "decoder_with_past_model.onnx"),
        (("decoder_model.onnx", "decoder_model_merged.onnx"), "decoder_model_merged.onnx"),
        (("decoder_model_merged.onnx", "decoder_with_past_model.onnx"), "decoder_model_merged.onnx"),
        (("llama.onnx", "llama.onnx.data"), "llama.onnx"),
    ],
)
def test_a_folder_of_optimum_is_its_decoder(tmp_path, names, decoder):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert cli.model_path(str(tmp_path)) == tmp_path / decoder


def test_a_folder_of_genai_is_the_decoder_that_it_names(tmp_path):
    for name in ("model.onnx", "text.onnx"):
        (tmp_path / name).write_bytes(b"")
    config = tmp_path / "genai_config.json"
    config.write_text('{"model": {"decoder": {"filename": "text.onnx"}}}')
    assert cli.model_path(str(tmp_path)) == tmp_path / "text.onnx"


NAMED = '{"model": {"decoder": {"filename": %s}}}'


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "[" * 100_000, '{"model": []}', '{"model": {"decoder": "text.onnx"}}'),
        *(NAMED % name for name in ("3", '"x"', '""', "null", "[]", '"a\\u0000b"', '"\\ud800"', '"%s"' % ("x" * 5000))),
        *(NAMED % name for name in ('"../outside.onnx"', '"text.onnx/../../outside.onnx"', '"/etc/passwd"', '"sub"')),
    ],
)
def test_a_configuration_of_genai_that_names_no_file_beside_it_is_refused(tmp_path, text):
    """Wrong types, deep lists, long names, other folders: each is one line with the path of the configuration."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for path in (folder / "text.onnx", tmp_path / "outside.onnx"):
        path.write_bytes(b"")
    (config := folder / "genai_config.json").write_text(text)
    with pytest.raises(PipelineError, match="filename is not the name of a file beside it") as refused:
        cli.model_path(str(folder))
    assert str(refused.value).startswith(str(config))
    assert "\n" not in str(refused.value)


def test_a_huge_configuration_of_genai_is_not_read(tmp_path):
    with (tmp_path / "genai_config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PipelineError, match=r"genai_config\.json: is larger than 1,000,000 bytes"):
        cli.model_path(str(tmp_path))


@pytest.mark.parametrize("names", [(), ("a.onnx", "b.onnx")])
def test_a_folder_without_one_decoder_is_no_model(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(PipelineError, match="a folder without a decoder of GenAI or optimum"):
        cli.model_path(str(tmp_path))


def bindings_of(tmp_path, text):
    (tmp_path / "own.ini").write_text(text, encoding="utf-8")
    settings = cli.parse(parser(), ["--config", str(tmp_path / "own.ini")])
    return cli.configured_bindings(settings.config, Path("some/net.onnx"))


@pytest.mark.parametrize(
    ("text", "bindings"),
    [
        ("[model net.onnx]\ndim =\n  N=3\n  seq=5", {"N": 3, "seq": 5}),
        ("[model net.onnx]\ndim = N=3", {"N": 3}),
        ("[model other.onnx]\ndim = N=3", {}),
        ("[model net.onnx]", {}),
        ("", {}),
    ],
)
def test_bindings_of_a_model(tmp_path, text, bindings):
    assert bindings_of(tmp_path, text) == bindings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model net.onnx]\ndim = N", r"model net\.onnx: dim: 'N' is not NAME=NUMBER"),
        ("[model net.onnx]\nruns = 3", r"model net\.onnx: takes only dim"),
        ("[model net.onnx]\ndim = N=-1", r"model net\.onnx: dim: '-1' is not a whole number"),
        ("[model net.onnx]\ndim = N=many", r"dim: 'many' is not a whole number"),
    ],
)
def test_bindings_that_are_none(tmp_path, text, message):
    with pytest.raises(ConfigurationError, match=message):
        bindings_of(tmp_path, text)


# --- streams --------------------------------------------------------------------------------------------------------


def test_tables_go_to_stdout_and_notes_to_stderr(parse, capsys):
    cli.show(parse(), "a table")
    cli.say(parse(), "one", "two")
    assert capsys.readouterr() == ("a table\n", "one\ntwo\n")


def test_quiet_is_quiet(parse, capsys):
    cli.show(parse("--quiet"), "a table")
    cli.say(parse("--quiet"), "one")
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_for_a_terminal(parse, capsys, monkeypatch):
    cli.progress_bar(parse(), "runs")(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    cli.progress_bar(parse("--quiet"), "runs")(1, 2)
    assert capsys.readouterr().err == ""
    clock = iter([0.0, 7.0, 9.0, 9.05, 12.0])
    monkeypatch.setattr(streams.time, "monotonic", lambda: next(clock))
    bar = cli.progress_bar(parse(), "runs")
    bar(0, 2)  # at 7 s: what came before is not the runs' time
    bar(0.5, 2)
    bar(1.5, 2)  # too soon after the last one
    bar(2, 2)
    first, second, third = capsys.readouterr().err.removeprefix("\r").split("\r")
    assert first == f"runs {' ' * 24} 0/2  warming up "
    assert second == f"runs {'█' * 6}{' ' * 18} 0/2     6 s left"
    assert third == f"runs {'█' * 24} 2/2     0 s left\n"


def test_what_is_said_below_an_unfinished_bar_has_a_line_of_its_own(parse, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    clock = iter([0.0, 7.0])
    monkeypatch.setattr(streams.time, "monotonic", lambda: next(clock))
    cli.progress_bar(parse(), "runs")(0, 2)
    cli.say(parse(), "first", "sec\x1b[2Jond")
    assert capsys.readouterr().err.endswith("0/2  warming up \nfirst\nsec\\x1b[2Jond\n")


def test_an_error_is_one_line_of_what_can_be_seen(tmp_path):
    out = tmp_path / ("\x1b[31m\u202e<input>")
    (line,) = run_stage(SCRIPT, "--out", out).stderr.splitlines()
    assert line.isprintable() and r"\x1b[31m\u202e\x3cinput>" in line
    (line,) = run_stage(SCRIPT, "--what-if", "y" * 5000).stderr.splitlines()
    assert "is not NAME=NUMBER" in line and len(line) < 320
    (line,) = run_stage(SCRIPT, "\x07" + "z" * 5000).stderr.splitlines()
    assert r"unrecognized arguments: \x07zz" in line and len(line) < 320


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_path_that_is_no_text_and_a_poor_encoding_cost_nothing(tmp_path, encoding):
    out = os.fsencode(tmp_path) + b"/\xff-\xe5\x8d\xb7"
    write_executed(Path(os.fsdecode(out)))
    command = [sys.executable, ROOT / SCRIPT, "--out", out, "--what-if", "Conv=4"]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    ran = subprocess.run(command, env=env, capture_output=True, check=False)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
    assert b"\\udcff-" in ran.stderr
    assert json.loads(Path(os.fsdecode(out), "op_schedule.meta.json").read_text("utf-8"))["stage"] == SCRIPT


def test_an_error_is_one_line():
    error = UpstreamError(Path("out/x.csv"), "corrupt (two\nlines)", "run\n01")
    assert str(error) == "out/x.csv: corrupt (two lines); run 01"
    assert str(PipelineError("x", "problem")) == "x: problem"
    assert [kind.exit_code for kind in (PipelineError, CommandLineError, UpstreamError)] == [1, 2, 3]


# --- as a process ---------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
sys.argv = ["09_example.py", *sys.argv[1:]]
from common import cli
from common.messages.errors import PipelineError, UpstreamError

def main(argv=None):
    {body}
    return 0

cli.run(main)
"""


def process(body, **options):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{body}", body)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "stderr"),
    [
        ("pass", 0, ""),
        ("return 5", 5, ""),
        ("raise PipelineError('a', 'b', 'c')", 1, "09_example.py: error: a: b; c\n"),
        ("raise UpstreamError('a', 'b')", 3, "09_example.py: error: a: b\n"),
        ("raise KeyboardInterrupt", 130, "09_example.py: interrupted; nothing was replaced\n"),
        ("raise SystemExit(0)", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise BrokenPipeError", 0, ""),
    ],
)
def test_exit_codes(body, code, stderr):
    ran = process(body)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", stderr)


ENDS = (
    "import atexit, threading; from common.process import interrupts; atexit.register(print, 'the interpreter ends'); "
)
SOLVER = "solver = threading.Thread(target=threading.Event().wait, daemon=True); solver.start(); "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "printed"), [("", "done\nthe interpreter ends\n"), (f"{SOLVER}interrupts.leave_alone(solver); ", "done\n")]
)
def test_the_interpreter_does_not_end_beside_a_solver_that_was_left_alone(left, printed):
    """It would end the solver's thread amid its C++, which aborts the process with code 134."""
    ran = process(f"{ENDS}{left}print('done'); return 3")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, printed, "")


@pytest.mark.slow
def test_a_bug_shows_its_traceback():
    ran = process("raise ZeroDivisionError")
    assert ran.returncode == 1
    assert ran.stderr.startswith("Traceback")


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--help", "--describe"])
def test_a_reader_that_has_gone_gives_no_traceback(flag):
    """``true`` ends before the script has anything to say."""
    command = f"({sys.executable} {SCRIPT} {flag}; echo code $? >&2) | true"
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stderr == "code 0\n"


@pytest.mark.slow
def test_head_of_a_long_output_gives_no_traceback():
    body = "settings = cli.Settings({'quiet': False}, {}, ''); cli.show(settings, 'row\\\\n' * 100_000)"
    program = PROGRAM.replace("{body}", body.replace("\\\\n", "\\n"))
    writer = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "row\n"
    writer.stdout.close()
    assert writer.stderr.read() == ""
    writer.stderr.close()
    assert writer.wait() == 0


@pytest.mark.slow
def test_stdout_on_a_full_disk_is_an_error_of_one_line(tmp_path):
    write_executed(tmp_path / "out")
    command = f"{sys.executable} {ROOT / SCRIPT} --out out > /dev/full"
    ran = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    line = f"{SCRIPT}: error: stdout: cannot be written (No space left on device); the tables are complete\n"
    assert ran.stderr == line
    assert (tmp_path / "out" / "op_schedule.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--help", "--describe"])
def test_help_on_a_full_disk_is_an_error_of_one_line(flag):
    command = f"{sys.executable} {ROOT / SCRIPT} {flag} > /dev/full"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (
        1,
        f"{SCRIPT}: error: stdout: cannot be written (No space left on device)\n",
    )


def heard():
    """A shell's background job ignores an interrupt, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def uncovered():
    """An environment without coverage: an interrupt that hits its tracer while that holds its lock waits for ever."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


@pytest.mark.slow
def test_ctrl_c_in_mid_stage_is_one_line(tmp_path):
    """04 has read its tables, and waits where it looks for the longest path."""
    write_executed(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    program = """
import importlib, sys, time
from common import cli
def wait(dag):
    print("ready", flush=True)
    time.sleep(600)
stage = importlib.import_module("04_critical_path")
stage.longest_path = wait
sys.argv[0] = "04_critical_path.py"
cli.run(stage.main)
"""
    command = [sys.executable, "-c", program, "--out", str(tmp_path), "--quiet"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    stage = subprocess.Popen(command, cwd=ROOT, env=uncovered(), preexec_fn=heard, **pipes)  # noqa: PLW1509
    assert stage.stdout.readline() == "ready\n"
    stage.send_signal(signal.SIGINT)
    stdout, stderr = stage.communicate(timeout=600)
    assert (stage.returncode, stdout) == (INTERRUPTED, "")
    assert stderr == "04_critical_path.py: interrupted; nothing was replaced\n"
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.name in before} == before


@pytest.mark.slow
def test_ctrl_c_while_writing_leaves_what_stood_there(tmp_path):
    body = """
    from pathlib import Path
    import time
    from tests.support.tables.dag import write_executed
    from common.artifacts.folder import Folder
    from common.artifacts.transaction import Transaction
    from common.artifacts.provenance import Provenance
    folder = Path(sys.argv[1])
    write_executed(folder)
    edges = Folder(folder, Provenance("04", "04")).table("executed_edges")
    with Transaction(folder, Provenance("04_critical_path.py", "")) as transaction:
        transaction.add_table("executed_edges", edges.head(2))
        print("ready", flush=True)
        time.sleep(600)
    """
    stage = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{body}", body.strip()), str(tmp_path)],
        cwd=ROOT,
        env={**uncovered(), "PYTHONPATH": str(ROOT)},
        preexec_fn=heard,  # noqa: PLW1509
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stage.stdout.readline() == "ready\n"
    stage.send_signal(signal.SIGINT)
    _, stderr = stage.communicate(timeout=600)
    assert stage.returncode == INTERRUPTED
    assert stderr == "09_example.py: interrupted; nothing was replaced\n"
    assert len((tmp_path / "executed_edges.csv").read_text().splitlines()) == 9
    assert not (tmp_path / STAGING).exists()


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"])
def test_a_closed_stream_is_no_failure(closed):
    body = "cli.say(cli.parse(cli.Parser('09_example.py', ''), []), 'a note'); print('table')"
    command = ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, PROGRAM.replace("{body}", body)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    assert subprocess.run(command, cwd=ROOT, env=buffered, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_a_stage_is_an_interrupt(name):
    ran = process(f"import os, signal, time; os.kill(os.getpid(), signal.{name}); time.sleep(600)", env=uncovered())
    assert (ran.returncode, ran.stderr) == (130, "09_example.py: interrupted; nothing was replaced\n")


def test_a_duration_is_at_most_a_year():
    with pytest.raises(argparse.ArgumentTypeError, match="longer than a year"):
        cli.duration("1e300h")
