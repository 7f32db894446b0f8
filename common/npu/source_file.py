"""The text or the JSON of a file that another program wrote: every part is checked before it is used."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from common.files.json_stream import is_text
from common.messages.errors import PipelineError
from common.messages.names import quoted

LARGEST = 10.0**18  # no count of cycles or bytes is larger
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path, most_bytes: int, what: str) -> str:
    return "\n".join(line for _, line in read_lines(path, most_bytes, what))


def read_lines(path: Path, most_bytes: int, what: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, without its end, while the file is read.

    Raises:
        PipelineError: there is no such file, it cannot be read, it is too large, or it is no UTF-8 text.
    """
    number = 0
    try:
        with _opened(path, most_bytes, what) as file:
            for number, line in enumerate(io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n"), start=1):
                yield number, line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise PipelineError(path, f"is no UTF-8 text (after line {number})", f"give {what}") from error


@contextlib.contextmanager
def _opened(path: Path, most_bytes: int, what: str) -> Iterator[BinaryIO]:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise PipelineError(path, "is not a file", f"give {what}")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > most_bytes:
                raise PipelineError(path, f"is larger than {most_bytes:,} bytes", f"give {what} of fewer runs")
            if file.peek(2).startswith(UTF_16_MARKS):
                raise PipelineError(path, "is UTF-16 text", "save it as UTF-8")
            yield file
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", f"give {what}") from error


def read_json(path: Path, most_bytes: int, what: str) -> dict[str, object]:
    text = read_text(path, most_bytes, what)
    try:
        content = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PipelineError(path, f"is no JSON that can be read ({error})", f"give {what}") from error
    if not isinstance(content, dict) or not is_text(text, content):
        raise PipelineError(path, "holds no JSON object", f"give {what}")
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def listed_mappings(path: Path, content: Mapping[str, object], key: str, what: str) -> list[dict[str, object]]:
    objects = mappings(content.get(key))
    if objects is None:
        raise PipelineError(path, f"has no list of objects {key!r}", f"give {what}")
    return objects


def mappings(value: object) -> list[dict[str, object]] | None:
    """Return a list of JSON objects; None where the value is something else."""
    return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else None


def optional_number(path: Path, content: Mapping[str, object], key: str) -> float | None:
    """Return the number under a key, or None where it is missing.

    Raises:
        PipelineError: something else is there, or a number that no profile holds.
    """
    value = content.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return value
    raise PipelineError(path, f"{key} is {quoted(value)}, not a number of 0 or more", "record it again")
