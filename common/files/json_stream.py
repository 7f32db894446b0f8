"""JSON files that are too large to hold: the items of their one long list, one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from common.messages.errors import PipelineError
from common.messages.names import quoted

CHUNK = 1 << 16  # characters read at a time, at first
MOST_VALUE = 1 << 24  # characters of one item, or of a value beside the list
NEAR_END = 16  # characters: a literal or an escape that the buffer cuts is no longer
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class CutShortError(Exception):
    """The file ends early; the message says where."""


def list_items(path: Path, key: str, kind: str) -> Iterator[Any]:
    """Yield the items of a list: of the file itself, or the one under a key of the file's object.

    Memory does not grow with the file. Everything beside the list is skipped.

    Args:
        key: of the list, where the file holds an object.
        kind: what the file should be, for messages.

    Raises:
        CutShortError: after the last whole item, where the file ends early.
        PipelineError: it is no JSON, or has no such list.
        OSError: it cannot be read.
    """
    with path.open("rb") as binary:
        if binary.read(2) in UTF_16_MARKS:
            raise PipelineError(path, "is UTF-16 text", "save it as UTF-8")
    try:
        with path.open(encoding="utf-8-sig") as file:
            scanner = _Scanner(path, file, kind)
            if scanner.symbol() == "[" or (scanner.last == "{" and _reach(scanner, key)):
                yield from _items(scanner)
                return
    except UnicodeDecodeError as error:
        raise PipelineError(path, f"is no UTF-8 text ({error.reason})", f"give {kind}") from error
    raise PipelineError(path, f"is not {kind}: it has no list {key!r}", f"give {kind}")


def _reach(scanner: _Scanner, key: str) -> bool:
    """Read an object up to the list under a key; return whether there is such a list."""
    if scanner.symbol() == "}":
        return False
    scanner.step_back()
    while True:
        name = scanner.value()
        scanner.require(":")
        is_list = scanner.symbol() == "["
        if name == key:
            return is_list
        scanner.step_back()
        scanner.value()
        if scanner.require(",}") == "}":
            return False


def _items(scanner: _Scanner) -> Iterator[Any]:
    """Yield the items of a list whose bracket was read."""
    if scanner.symbol() == "]":
        return
    scanner.step_back()
    while True:
        yield scanner.value()
        if scanner.require(",]") == "]":
            return
        if scanner.symbol() == "]":
            return  # a comma before the end, as programs write that add one event after the other
        scanner.step_back()


class _Scanner:
    """Reads values and single characters from a file, of which it holds one piece."""

    def __init__(self, path: Path, file: TextIO, kind: str) -> None:
        self._path, self._file, self._kind = path, file, kind
        self._text, self._place, self._dropped = "", 0, 0
        self._decoder = json.JSONDecoder(parse_constant=_refused)
        self.last = ""

    def symbol(self) -> str:
        """Return the next character that is no space."""
        while True:
            while self._place < len(self._text):
                self.last = self._text[self._place]
                self._place += 1
                if not self.last.isspace():
                    return self.last
            if not self._more(CHUNK):
                raise self._cut()

    def step_back(self) -> None:
        """Give back the character that was read last."""
        self._place -= 1

    def require(self, allowed: str) -> str:
        """Return the next character, which must be one of these."""
        if self.symbol() not in allowed:
            raise self._malformed(f"{quoted(self.last)} where {' or '.join(allowed)} is expected", self._place - 1)
        return self.last

    def value(self) -> Any:
        """Return the next value; CutShortError: the file ends within it; PipelineError: it is no JSON, or too long."""
        self.symbol()
        self.step_back()
        size = CHUNK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - NEAR_END
                if not is_open:
                    raise self._malformed(error.msg, error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self._malformed(str(error), self._place) from error
            else:
                if end < len(self._text) - 2 or not self._more(size):  # a number may go on after its point or its e
                    if not is_text(self._text[self._place : end], value):
                        raise self._malformed("half of a surrogate pair", self._place)
                    self._place = end
                    return value
                continue
            if len(self._text) - self._place > MOST_VALUE:
                raise self._malformed(f"one value is longer than {MOST_VALUE:,} characters", self._place)
            if not self._more(size):
                raise self._cut()
            size *= 2

    def _more(self, size: int) -> bool:
        """Read on; drop what was used."""
        piece = self._file.read(size)
        if piece:
            self._text, self._dropped, self._place = self._text[self._place :] + piece, self._dropped + self._place, 0
        return bool(piece)

    def _cut(self) -> CutShortError:
        return CutShortError(f"it ends after {self._dropped + len(self._text):,} characters, within a list")

    def _malformed(self, problem: str, place: int) -> PipelineError:
        where = f"from character {self._dropped + place:,} on"
        return PipelineError(self._path, f"is no JSON {where} ({problem})", f"give {self._kind}")


def is_text(source: str, value: object) -> bool:
    """Whether all strings of a value can be written as UTF-8; ``source`` is its JSON."""
    if "\\ud" not in source and "\\uD" not in source:
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
