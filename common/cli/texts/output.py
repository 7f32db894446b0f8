"""Write on stdout, which may be a pipe that nobody reads or a file on a full disk."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from common.messages.errors import PipelineError


def write(text: str, remedy: str = "") -> None:
    """Write a text on stdout, and all that was written there before.

    Raises:
        PipelineError: stdout is a file on a full disk.
        BrokenPipeError: nobody reads it; :func:`common.cli.streams.run` ends the stage with success.
    """
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon(sys.stdout)
        raise PipelineError("stdout", f"cannot be written ({error.strerror})", remedy) from error


def abandon(stream: TextIO) -> None:
    """Send buffered output nowhere, or the interpreter fails when it flushes the stream at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
