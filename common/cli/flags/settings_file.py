"""The file of settings: lines ``name = value`` below ``[script]`` or ``[model FILE]``, a form that make can read too.

A setting that may be given several times takes one value a line, indented. A ``#`` after a space begins a comment.
"""

from __future__ import annotations

import argparse
import configparser
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from common.artifacts.stages import STAGES
from common.cli.flags import flag_types
from common.files.small_file import small_text
from common.messages.errors import ConfigurationError
from common.messages.names import quoted, shown

EVERY_STAGE = ("out", "quiet")  # settings of all stages that a file can hold
MODEL = "model "  # what the name of a model's section begins with
REMEDY = "it takes lines NAME = VALUE below [SCRIPT] or [model FILE]"
SWITCHES = {"true": True, "false": False}


def configured_settings(path: Path, parser: argparse.ArgumentParser, known: Collection[str]) -> dict[str, Any]:
    """Return the settings that the file gives for this script; each value is read as its flag reads it.

    Raises:
        ConfigurationError: a section names no script, a key names no flag, or a flag does not take its value.
    """
    sections = _sections(path)
    stems = sorted({Path(parser.prog).stem, *(Path(script).stem for script in STAGES if script.endswith(".py"))})
    for name, section in sections.items():
        if name.startswith(MODEL):
            continue
        if name not in stems:
            raise ConfigurationError(path, f"unknown script {quoted(name)}", f"it takes {', '.join(stems)}")
        if (script := f"{name}.py") in STAGES and script != parser.prog:
            _require_known(path, script, section, {*STAGES[script].settings, *EVERY_STAGE})
    section = sections.get(Path(parser.prog).stem, {})
    _require_known(path, parser.prog, section, known)
    actions = {action.dest: action for action in parser._actions}
    values = {}
    for name, text in section.items():
        try:
            values[name] = _read_as_flag(actions[name], text)
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise ConfigurationError(path, f"{name}: {error}") from error
    return values


def configured_bindings(path: Path, model: Path) -> dict[str, int]:
    """Return the sizes of dynamic dimensions, the only key ``dim``, that the file gives for models of this name."""
    section = _sections(path).get(f"{MODEL}{model.name}", {})
    if set(section) - {"dim"}:
        raise ConfigurationError(path, f"model {model.name}: takes only dim", "write dim = NAME=NUMBER")
    try:
        return dict(flag_types.binding(line) for line in section.get("dim", "").split("\n") if line)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(path, f"model {model.name}: dim: {error}") from error


def _sections(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(
        delimiters=("=",),
        comment_prefixes=("#",),
        inline_comment_prefixes=("#",),
        default_section="",  # no section is part of all others
    )
    parser.optionxform = lambda name: name.replace("-", "_")  # type: ignore[method-assign, assignment]
    try:
        parser.read_string(small_text(path))
    except configparser.Error as error:
        raise ConfigurationError(path, f"is no file of settings ({_place(error)})", REMEDY) from error
    return {name: dict(parser[name]) for name in parser.sections()}


def _place(error: configparser.Error) -> str:
    match error:
        case configparser.DuplicateSectionError():
            return f"line {error.lineno}: a second [{shown(error.section)}]"
        case configparser.DuplicateOptionError():
            return f"line {error.lineno}: a second {shown(error.option)}"
        case configparser.MissingSectionHeaderError():
            return f"line {error.lineno}: {quoted(error.line.rstrip())} is below no section"
        case configparser.ParsingError():
            return f"line {error.errors[0][0]}: no NAME = VALUE"
        case _:
            return shown(str(error))


def _require_known(path: Path, script: str, section: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse a key that is no setting of a script, whichever stage reads the file."""
    for name in section:
        if name not in known:
            remedy = f"it takes {', '.join(sorted(known))}"
            raise ConfigurationError(path, f"unknown key {quoted(name)} for {script}", remedy)


def _read_as_flag(action: argparse.Action, text: str) -> Any:
    if action.nargs == 0:  # a switch
        if text not in SWITCHES:
            raise ValueError(f"{quoted(text)} is not true or false")
        return SWITCHES[text]
    lines = [line for line in text.split("\n") if line]
    if isinstance(action.nargs, int):
        if len(lines) != action.nargs:
            raise ValueError(f"takes {action.nargs} lines, and has {len(lines)}")
        return [_converted(action, line) for line in lines]
    if isinstance(action, argparse._AppendAction):
        return [_converted(action, line) for line in lines]
    if len(lines) > 1:
        raise ValueError("takes one value, and has several lines")
    return _converted(action, text)


def _converted(action: argparse.Action, text: str) -> Any:
    if "\0" in text:
        raise ValueError("no text of a command line holds a NUL")
    converted = action.type(text) if callable(action.type) else text
    if action.choices is not None and converted not in action.choices:
        raise ValueError(f"{quoted(converted)} is not one of {', '.join(map(str, action.choices))}")
    return converted
