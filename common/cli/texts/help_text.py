"""The help of a script: a page of at most forty lines, and the whole text wrapped to the terminal."""

from __future__ import annotations

import shutil
import textwrap
from argparse import Action
from collections.abc import Iterable, Iterator, Sequence

MOST_LINES, MOST_COLUMNS = 40, 80
INDENT = " " * 8  # of what a stage reads and writes
FLAG_COLUMN = 26
LEAST_FLAGS = 6  # lines that are kept for flags, however long the head is


def terminal_columns() -> int:
    return max(shutil.get_terminal_size((MOST_COLUMNS, 24)).columns, 60)


def wrapped(doc: str, columns: int) -> str:
    """Return a docstring with its paragraphs filled; indented examples stay as they are."""
    return "\n\n".join("\n".join(_filled(block, columns)) for block in doc.strip().split("\n\n"))


def short_help(prog: str, doc: str, actions: Sequence[Action]) -> str:
    """Return what a stage reads and writes, an example, and as many of its own flags as fit."""
    columns = min(terminal_columns(), MOST_COLUMNS)
    lines = _head(prog, doc, columns)[: MOST_LINES - LEAST_FLAGS - 1]
    documented = [action for action in actions if action.option_strings and action.help]
    shown_count = 0
    for action in documented:
        entry = _flag_lines(action, columns)
        if len(lines) + len(entry) > MOST_LINES - 1:
            break
        lines += entry
        shown_count += 1
    left = len(documented) - shown_count
    more = f", with {left} more {'flag' if left == 1 else 'flags'}" if left else ""
    return "\n".join([*lines, f"{'--help-all':<{FLAG_COLUMN}}everything{more}"]) + "\n"


def _head(prog: str, doc: str, columns: int) -> list[str]:
    """Return the text before the flags: the first paragraph, what is read and written, and an example."""
    first, *others = doc.strip().split("\n\n")
    blocks = [first, *(block for block in others if block.startswith("Reads"))]
    examples = [line for line in doc.splitlines() if line.startswith("    python ") and prog in line]
    commands = (line.partition(" #")[0].rstrip() for line in examples)
    example = next((command for command in commands if len(command) <= columns), None)
    lines = [line for block in blocks for line in (*_filled(block, columns), "")]
    return [f"usage: python {prog} [FLAG ...]", "", *lines, *([] if example is None else [example, ""])]


def fill(text: str, columns: int, indent: str = "") -> list[str]:
    """Fill lines without a break inside of a flag or a name."""
    return textwrap.wrap(text, columns, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _flag_lines(action: Action, columns: int) -> list[str]:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if isinstance(action.metavar, tuple):
        metavar = " ".join(action.metavar)
    if action.choices is not None and not metavar:
        words = "|".join(map(str, action.choices))
        metavar = words if len(words) < columns // 2 else "NAME"
    name = f"{[flag for flag in action.option_strings if '_' not in flag][-1]} {metavar}".rstrip()
    text = fill((action.help or "").replace("%%", "%"), columns - FLAG_COLUMN)
    if len(name) >= FLAG_COLUMN - 1:
        return [*fill(name, columns), *(" " * FLAG_COLUMN + line for line in text)]
    first, *others = text or [""]
    return [f"{name:<{FLAG_COLUMN}}{first}".rstrip(), *(" " * FLAG_COLUMN + line for line in others)]


def _filled(block: str, columns: int) -> Iterator[str]:
    lines = block.splitlines()
    if not block.startswith(("Reads ", "Writes ")) and any(line.startswith("    ") for line in lines):
        yield from lines
        return
    for entry in _entries(lines):
        yield from fill(entry, columns, indent=INDENT if entry.startswith(("Reads ", "Writes ")) else "")


def _entries(lines: Iterable[str]) -> Iterator[str]:
    """Yield each paragraph as one line; what a stage reads and what it writes are two."""
    entry = ""
    for line in lines:
        if line.startswith(("Reads ", "Writes ")) and entry:
            yield entry
            entry = ""
        entry = f"{entry} {line.strip()}".strip()
    yield entry
