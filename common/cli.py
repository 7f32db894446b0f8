"""What every script shares: flags, the precedence flag > configuration > default, streams and exit codes.

stdout carries the table the user came for; stderr carries progress, notes and what was written. Exit codes: 0 done,
1 failed, 2 command line, 3 an upstream table is missing, stale or of another model, 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from common.errors import CommandLineError, PipelineError

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUT = "out"
DEFAULT_CONFIG = ROOT / "configs" / "settings.yaml"
INTERRUPTED = 130
Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """An argument parser whose help is the script's docstring and whose defaults stay apart from what was given."""

    def __init__(self, script: str, doc: str) -> None:
        """Add the flags that every stage has."""
        super().__init__(
            prog=script,
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        self.defaults: dict[str, Any] = {}
        self.setting("--out", type=Path, default=Path(DEFAULT_OUT), metavar="FOLDER", help="where the tables stand")
        self.setting("--config", type=Path, default=DEFAULT_CONFIG, metavar="FILE", help="settings below the flags")
        self.setting("--quiet", action="store_true", default=False, help="no table on stdout, no notes on stderr")
        self.add_argument("--describe", action="store_true", help="print the tables that this script writes, and exit")

    def setting(self, *flags: str, default: Any = None, help: str = "", **options: Any) -> None:
        """Add a flag whose value may also come from the configuration, and at last from ``default``."""
        shown = "" if default is None or default is False else f" (default: {default})"
        action = self.add_argument(*flags, help=f"{help}{shown}".replace("%", "%%"), **options)
        self.defaults[action.dest] = default

    def error(self, message: str) -> NoReturn:
        """One line, no usage dump."""
        raise CommandLineError("command line", message, f"see {self.prog} --help")


class Settings:
    """Effective settings as attributes, and for each where it came from."""

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str], command: str) -> None:
        """Keep values and origins side by side."""
        self.values = dict(values)
        self.origins = dict(origins)
        self.command = command

    def __getattr__(self, name: str) -> Any:
        """Give the value of the setting ``name``."""
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def record(self) -> dict[str, dict[str, Any]]:
        """Value and origin of each setting, for the sidecar."""
        plain = {
            name: value if isinstance(value, bool | int | float | dict | list) or value is None else str(value)
            for name, value in self.values.items()
        }
        return {name: {"value": plain[name], "from": self.origins[name]} for name in self.values}


def parse(parser: Parser, argv: Sequence[str] | None) -> Settings:
    """Parse ``argv``, fill in configuration and defaults.

    Raises:
        CommandLineError: an unknown flag, an unusable value, or a configuration with an unknown key.
    """
    given = vars(parser.parse_args(argv))
    if given.pop("describe", False):
        from common.artifacts.describe import describe_stage  # the catalogue is only wanted here

        print(describe_stage(parser.prog), end="")
        raise SystemExit(0)
    config_path = given.get("config", DEFAULT_CONFIG)
    configured = configured_settings(parser, config_path)
    values, origins = {}, {}
    for name, default in parser.defaults.items():
        if name in given:
            values[name], origins[name] = given[name], "flag"
        elif name in configured:
            values[name], origins[name] = configured[name], config_path.name
        else:
            values[name], origins[name] = default, "default"
    command = shlex.join([parser.prog, *(sys.argv[1:] if argv is None else argv)])
    return Settings(values, origins, command)


def configured_settings(parser: Parser, path: Path) -> dict[str, Any]:
    """The section of the configuration that belongs to this script, each value read as its flag would read it."""
    section = load_yaml(path, {"stages", "models"}).get("stages") or {}
    section = (section if isinstance(section, dict) else {}).get(Path(parser.prog).stem) or {}
    known = {action.dest: action for action in parser._actions if action.dest in parser.defaults}
    values = {}
    for key, value in section.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise CommandLineError(
                path, f"unknown key {key!r} for {parser.prog}", f"it takes {', '.join(sorted(known))}"
            )
        convert = known[name].type
        try:
            values[name] = convert(str(value)) if callable(convert) else value
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise CommandLineError(path, f"{key}: {error}") from error
    return values


def load_yaml(path: Path, keys: set[str] | None = None) -> dict[str, Any]:
    """Read a YAML mapping; with ``keys``, any other top-level key is an error."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandLineError(path, f"cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandLineError(path, f"is not YAML ({str(error).splitlines()[0]})") from error
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise CommandLineError(path, "is not a mapping")
    if keys is not None and (unknown := sorted(set(content) - keys)):
        raise CommandLineError(path, f"unknown key {unknown[0]!r}", f"it takes {', '.join(sorted(keys))}")
    return content


# --- types of flags -------------------------------------------------------------------------------------------------


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    return _bounded(int, text, 1, "a whole number of at least 1")


def non_negative_int(text: str) -> int:
    """A whole number of at least 0."""
    return _bounded(int, text, 0, "a whole number of at least 0")


def positive_float(text: str) -> float:
    """A finite number above 0."""
    value = _bounded(float, text, 0, "a finite number above 0")
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def _bounded(convert: Callable[[str], Number], text: str, minimum: int, wanted: str) -> Number:
    try:
        value = convert(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}") from None
    if not math.isfinite(value) or value < minimum:
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return value


def binding(text: str) -> tuple[str, int]:
    """``NAME=NUMBER``: the size of a dynamic dimension."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER")
    return name, positive_int(value)


def assignment(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


# --- streams --------------------------------------------------------------------------------------------------------


def say(settings: Settings, *lines: str) -> None:
    """Put a note or a progress line on stderr."""
    if not settings.quiet:
        for line in lines:
            print(line, file=sys.stderr)


def show(settings: Settings, text: str) -> None:
    """Put the table on stdout."""
    if not settings.quiet:
        print(text, flush=True)


def run(main: Callable[[Sequence[str] | None], int]) -> NoReturn:
    """Run a stage as a process: errors become one line on stderr and an exit code.

    A closed stdout (``| head``) is no error: the tables are already written when the stage prints.
    """
    script = Path(sys.argv[0]).name
    try:
        code = main(None)
        sys.stdout.flush()
    except PipelineError as error:
        print(f"{script}: error: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print(f"{script}: interrupted; nothing was replaced", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it exits
        code = 0
    sys.exit(code)
