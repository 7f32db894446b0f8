"""Run the tools of ONNX Runtime without what they print and log."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

from common.messages.errors import PipelineError
from common.runtime.sessions.session import reason_of

LEAST_FREE_BYTES = 4096  # of a disk that is not full: one page


@contextlib.contextmanager
def quiet_tool(subject: object, problem: str, folder: Path) -> Iterator[None]:
    """Run a tool of ONNX Runtime in the block, without what it prints and logs.

    Args:
        problem: what the block is for, as in "cannot be calibrated".

    Raises:
        PipelineError: the tool raises, with its own reason.
        ImportError, MemoryError: a package is missing, or memory, which says nothing about a format.
        OSError: the disk is full, which says nothing about a format. Some tools write less than they have to then, and
            fail when they read it again.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            yield
    except (PipelineError, ImportError, MemoryError):
        raise
    except Exception as error:  # the tools raise what they like
        says_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if says_full or shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        reason = reason_of(error) or type(error).__name__
        raise PipelineError(subject, f"{problem} ({reason})") from error
    finally:
        logging.disable(before)
