"""The text of a file that another program wrote, which may be anything."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from common.errors import PipelineError

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path, most_bytes: int, what: str) -> str:
    """Return the text of a file; see :func:`read_lines` for what is refused."""
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
