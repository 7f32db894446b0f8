"""Programs of several commands: the first word says which one runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from common.errors import CommandLineError
from common.names import quoted

Command = Callable[[Sequence[str]], int]


def run_command(commands: Mapping[str, Command], text: str, argv: Sequence[str] | None) -> int:
    """Run one of the commands and return its exit code; without one, print the text that lists them.

    Raises:
        CommandLineError: there is no such command.
    """
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    if name in ("-h", "--help"):
        print(text)
        return 0
    if name not in commands:
        raise CommandLineError("command line", f"{quoted(name)} is not a command", f"it takes {', '.join(commands)}")
    return commands[name](rest)
