"""The commands whose output the README and the docs show."""

from tests.support.paths import ROOT

COMMANDS = ROOT / "tests" / "recorded" / "commands.txt"


def commands():
    """The commands by the name of their record, in the order in which they run."""
    lines = COMMANDS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {name: command.strip() for name, command in pairs}
