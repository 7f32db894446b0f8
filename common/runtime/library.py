"""ONNX Runtime as a library: the only import of it, quiet and without telemetry.

From version 1.31 on, its import starts telemetry, unless an environment variable that :mod:`common` sets forbids it.
The runtime's own switch is thrown as well, for versions that know no variable.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import onnxruntime as ort

from common.messages.errors import PipelineError
from common.process import interrupts

__all__ = ["SILENT", "ort", "path_text", "silenced"]
SILENT = 4  # log level: the runtime also raises the errors that it logs, or writes them into the trace
_silence = threading.Lock()  # two threads at once would each put back what the other one found

ort.disable_telemetry_events()
ort.set_default_logger_severity(SILENT)


def path_text(path: Path) -> str:
    """Return a path as the runtime takes it; PipelineError: some of its bytes are not UTF-8."""
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PipelineError(path, "ONNX Runtime takes only paths in UTF-8", "use another folder") from error
    return text


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop what native code prints on stderr, such as RE2's complaint about a pattern that the runtime then raises."""
    with _silence:
        try:
            kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        except OSError:  # whoever started us closed stderr
            yield
            return
        before, interrupts.stderr_descriptor = interrupts.stderr_descriptor, kept
        os.dup2(nowhere, 2)
        os.close(nowhere)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            interrupts.stderr_descriptor = before
            os.close(kept)
