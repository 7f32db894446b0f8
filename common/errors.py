"""What the user can put right: one line, the path or flag first, the way out last.

Any room may raise these. Everything else that escapes a stage is our bug and shows its traceback.
"""

from __future__ import annotations


class PipelineError(Exception):
    """A failure that the user can act on; ``exit_code`` is what the script exits with."""

    exit_code = 1

    def __init__(self, subject: object, problem: str, remedy: str = "") -> None:
        """Compose ``subject: problem; remedy`` and keep it to one line."""
        text = f"{subject}: {problem}" + (f"; {remedy}" if remedy else "")
        super().__init__(" ".join(text.split()))


class CommandLineError(PipelineError):
    """A flag or a configured value that cannot be used."""

    exit_code = 2


class UpstreamError(PipelineError):
    """A table of an earlier stage is missing, stale, corrupt or of another model."""

    exit_code = 3
