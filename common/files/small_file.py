"""The text of a configuration file, which is small and on a disk."""

from __future__ import annotations

from pathlib import Path

from common.messages.errors import ConfigurationError

LARGEST_FILE_BYTES = 1_000_000  # no file of configs/ has a twentieth of that


def small_text(path: Path) -> str:
    """Return the text of a file; ConfigurationError: it cannot be read, is a pipe, is too large or is not UTF-8."""
    try:
        if path.is_fifo():
            raise ConfigurationError(path, "is a pipe, which nobody may write into", "give a file")
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(path, f"cannot be read ({error.strerror})") from error
    if len(content) > LARGEST_FILE_BYTES:
        raise ConfigurationError(path, f"is larger than {LARGEST_FILE_BYTES:,} bytes", "give a configuration")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(path, f"is not a text in UTF-8 ({error.reason}, byte {error.start})") from error
