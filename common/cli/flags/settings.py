"""Flags and their precedence: flag > configuration > default, each value with where it came from."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from common.artifacts.folder import is_there
from common.artifacts.stages import STAGES
from common.cli.flags import flag_types
from common.cli.flags.settings_file import configured_settings
from common.cli.flags.shared_flags import SHARED
from common.cli.texts.help_text import short_help, terminal_columns, wrapped
from common.cli.texts.output import write
from common.cli.texts.wording import flag
from common.messages.errors import CommandLineError, PipelineError
from common.messages.names import did_you_mean, shown

ROOT = Path(__file__).resolve().parents[3]
DEFAULT_OUT = "out"
DEFAULT_CONFIG = ROOT / "configs" / "settings.ini"
# flags of every script
OF_EVERY_STAGE = ("help", "help_all", "out", "config", "quiet", "describe", "check", "all_notes")
SWITCHES = ("check", "all_notes")  # of a single call
ONE_VALUE_A_NAME = frozenset({"dim", "with_dim", "input", "kernel_speedup"})  # each NAME at most once


class Parser(argparse.ArgumentParser):
    """An argument parser that prints the script's docstring as help and keeps defaults apart from given values."""

    def __init__(self, script: str, doc: str) -> None:
        super().__init__(
            prog=script,
            description=wrapped(doc, terminal_columns()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        self.doc = doc
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every flag with the whole text, and exit")
        self.defaults: dict[str, Any] = {}
        self.flags: dict[str, str] = {}  # the spelling of each setting
        self.elsewhere: dict[str, str] = {}  # of flags that other scripts have, what they do there
        path: dict[str, Any] = {"type": flag_types.path}
        self.setting("--out", default=Path(DEFAULT_OUT), metavar="FOLDER", help="folder of the tables", **path)
        text = "file of settings; flags override it"
        self.setting("--config", default=DEFAULT_CONFIG, metavar="FILE", help=text, **path)
        self.setting("--quiet", action="store_true", default=False, help="print neither the table nor the notes")
        self.add_argument("--describe", action="store_true", help="print the columns that this script writes, and exit")
        text = "check the command line and the files that it names, and exit: `make run` does so first"
        self.add_argument("--check", action="store_true", help=text)
        text = "print every note and every file that was written, not only the most important ones"
        self.add_argument("--all-notes", action="store_true", help=text)

    def format_help(self) -> str:
        """Return the short help: the flags of the stage come first, then those of all stages."""
        if self.prog not in STAGES:  # a kernel has few flags
            return super().format_help()
        own = [action for action in self._actions if action.dest not in OF_EVERY_STAGE]
        shared = [action for action in self._actions if action.dest in ("out", "quiet")]
        return short_help(self.prog, self.doc, [*own, *shared])

    def format_help_all(self) -> str:
        """Return every flag with the whole docstring."""
        return super().format_help()

    def setting(self, *flags: str, default: Any = None, help: str = "", **options: Any) -> None:
        """Add a flag; its value comes from the command line, else from the configuration, else from ``default``."""
        has_default = default is not None and default is not False and default not in ("", [], ())
        shown = f" (default: {_default_text(default, options.get('type'))})" if has_default else ""
        action = self.add_argument(*flags, help=f"{help}{shown}".replace("%", "%%"), **options)
        self.defaults[action.dest] = default
        self.flags[action.dest] = flags[0]

    def shared(self, *names: str, **changes: Any) -> None:
        """Add flags that several scripts have; ``changes`` are options in which this one differs, as its default."""
        for name in names:
            self.setting(name, **{**SHARED[name], **changes})

    def error(self, message: str) -> NoReturn:
        """Raise one line instead of printing the usage, with the likely flag, or the script that has the given one."""
        unknown = re.match(r"unrecognized arguments: (-[^\s=]*)", message)
        hint = ""
        if unknown and (there := self.elsewhere.get(unknown[1])):
            hint = f"{there}; "
        elif unknown:
            hint = did_you_mean(unknown[1], self._option_string_actions)
        raise CommandLineError("command line", message, f"{hint}see {self.prog} --help")


def _default_text(default: Any, convert: Any) -> str:
    """Return a default as a user would give it on the command line."""
    if convert is flag_types.duration:
        return flag_types.duration_text(default)
    if isinstance(default, Path):
        return _path_text(default)
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)


def _path_text(path: Path) -> str:
    """Return a path as the user knows it: in this project, or from the home folder."""
    if path.is_relative_to(ROOT):
        return str(path.relative_to(ROOT))
    with contextlib.suppress(RuntimeError):  # a user without a home folder
        if path.is_relative_to(home := Path.home()):
            return f"~/{path.relative_to(home)}"
    return str(path)


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        parser._print_message(parser.format_help_all(), sys.stdout)
        parser.exit()


@dataclass(frozen=True)
class Settings:
    """Effective settings as attributes, the origin of each, and the switches of the call, which no sidecar has."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    command: str
    check: bool = False  # the stage ends with its checks
    all_notes: bool = False  # all notes are printed, and not the most important ones alone

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def given(self) -> frozenset[str]:
        """Settings that the command line gives."""
        return frozenset(name for name, origin in self.origins.items() if origin == "flag")

    def one_of(self, *names: str) -> str | None:
        """Name of the one setting that is given; a flag overrides the configuration, and two flags are refused."""
        given = [name for name in names if self.values[name] is not None]
        flagged = [name for name in given if self.origins[name] == "flag"]
        if len(chosen := flagged or given) > 1:
            raise CommandLineError(" and ".join(map(flag, chosen)), "exclude each other", "give one of them")
        return chosen[0] if chosen else None

    def with_defaults(self, defaults: Mapping[str, Any], origin: str) -> Settings:
        """Return settings in which those without a value (None) take their default from a file called ``origin``."""
        missing = [name for name in defaults if self.values[name] is None]
        values = {**self.values, **{name: defaults[name] for name in missing}}
        return replace(self, values=values, origins={**self.origins, **dict.fromkeys(missing, origin)})

    def changed(self, **values: Any) -> Settings:
        return replace(self, values={**self.values, **values})

    def record(self) -> dict[str, dict[str, Any]]:
        """Value and origin of each setting, as the sidecar states them."""
        return {name: {"value": _plain(value), "from": self.origins[name]} for name, value in self.values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [str(item) if isinstance(item, Path) else item for item in value]
    return value if isinstance(value, bool | int | float | dict) or value is None else str(value)


def parse(parser: Parser, argv: Sequence[str] | None) -> Settings:
    """Parse ``argv``, fill in the configuration and the defaults; CommandLineError for an unknown flag or value."""
    given = vars(parser.parse_args(argv))
    if given.pop("describe", False):
        from common.artifacts.generated.describe import describe_stage  # only --describe needs the catalogue

        write(describe_stage(parser.prog))
        raise SystemExit(0)
    switches = {name: given.pop(name, False) for name in SWITCHES}
    try:
        Path.cwd()  # several libraries ask for it
    except FileNotFoundError as error:
        raise PipelineError("the working folder", "does not exist any more", "change to another one") from error
    config_path = given.get("config", DEFAULT_CONFIG)
    configured = configured_settings(config_path, parser, parser.defaults.keys() - {"config"})  # it names no other
    values, origins = {}, {}
    for name, default in parser.defaults.items():
        if name in given:
            values[name], origins[name] = given[name], "flag"
        elif name in configured:
            values[name], origins[name] = configured[name], config_path.name
        else:
            values[name], origins[name] = default, "default"
        if name in ONE_VALUE_A_NAME:
            _refuse_repeated(name, values[name])
    command = shlex.join([parser.prog, *(sys.argv[1:] if argv is None else argv)])
    return Settings(values, origins, command, **switches)


def _refuse_repeated(name: str, values: Sequence[tuple[str, Any]] | None) -> None:
    """Refuse two values for one name, because only one of them could take effect."""
    keys = [key for key, _ in values or ()]
    if repeated := next((key for key in keys if keys.count(key) > 1), None):
        raise CommandLineError(f"{flag(name)} {shown(repeated)}", "is given more than once", "give it once")


def given_flags(settings: Settings, names: Collection[str]) -> list[str]:
    """Return the words of those of these settings that the command line gives, for another command."""
    words = [(name, settings.values[name]) for name in names if name in settings.given]
    repeated = [(name, value if isinstance(value, list) else [value]) for name, value in words]
    return [
        f"{flag(name)} {shlex.quote('='.join(map(str, item)) if isinstance(item, tuple) else str(item))}"
        for name, values in repeated
        for item in values
    ]


def ceilings_path(settings: Settings) -> Path:
    """Path of the host's ceilings: ``--ceilings``, else in ``out/``, else in the stage's own folder."""
    shared, own = (folder / "host_ceilings.json" for folder in (Path(DEFAULT_OUT), settings.out))
    return Path(settings.ceilings or (shared if is_there(shared) else own))
