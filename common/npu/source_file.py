"""The text of a file that another program wrote, which may be anything."""

from __future__ import annotations

from pathlib import Path

from common.errors import PipelineError

UTF_8_MARK, UTF_16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path, most_bytes: int, what: str) -> str:
    """Return the text of a file.

    Args:
        path: the file.
        most_bytes: a larger file is refused.
        what: what the file should be, for messages.

    Raises:
        PipelineError: there is no such file, it cannot be read, it is too large, or it is no UTF-8 text.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise PipelineError(path, "is not a file", f"give {what}")
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", f"give {what}") from error
    if len(content) > most_bytes:
        raise PipelineError(path, f"is larger than {most_bytes:,} bytes", f"give {what} of fewer runs")
    if content.startswith(UTF_16_MARKS):
        raise PipelineError(path, "is UTF-16 text", "save it as UTF-8")
    try:
        return content.removeprefix(UTF_8_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PipelineError(path, f"is no UTF-8 text (byte {error.start})", f"give {what}") from error
