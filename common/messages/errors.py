"""Failures that the user can act on, each as one line: first the subject, then the problem, then the remedy.

Any room may raise these. Any other exception that escapes a stage is a bug of this project and shows its traceback.

A room knows neither flags nor scripts. Where a problem or a remedy needs them, it names a quantity or a table in angle
brackets, by its name in the settings or in the catalogue: ``<peak_flops>``, ``<op_metrics>``. ``common.cli`` prints
the flag of the stage, or the script that writes the table.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Mapping
from typing import Any

from common.messages.names import MOST_SHOWN, shorten, shown

MOST_PART = 600  # characters of subject, problem and remedy each: a model may have a thousand dimensions
_LONG_WORD = re.compile(rf"\S{{{MOST_SHOWN + 9},}}")  # longer than a name with its quotes and punctuation


class PipelineError(Exception):
    """A failure that the user can act on: what happened, the way out, and what the script exits with."""

    exit_code = 1

    def __init__(self, subject: object, problem: str, remedy: str = "") -> None:
        """Compose ``subject: problem; remedy`` and keep it to one line, without words that nobody would read."""
        self.problem, self.remedy = problem, remedy
        subject = subject if isinstance(subject, str) else shown(subject)
        text = f"{shorten(subject, MOST_PART)}: {shorten(problem, MOST_PART)}"
        text += f"; {shorten(remedy, MOST_PART)}" if remedy else ""
        super().__init__(_LONG_WORD.sub(lambda word: shorten(word[0], MOST_SHOWN), " ".join(text.split())))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process makes this error again: its message is composed already."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UnusableValueError(PipelineError):
    """A given value of a quantity that cannot be used; the problem names the value, the remedy those that can.

    The quantity is named as in the settings: ``sensor_rate_hz``. Several are separated by commas.
    """

    exit_code = 2

    def __init__(self, quantity: str, problem: str, remedy: str = "") -> None:
        """Name the quantity in the brackets that ``common.cli`` replaces by a flag."""
        self.quantities = tuple(name.strip() for name in quantity.split(","))
        super().__init__(", ".join(f"<{name}>" for name in self.quantities), problem, remedy)


class UnboundDimensionsError(UnusableValueError):
    """Dynamic dimensions of a model without a size; ``sizes`` proposes one for each."""

    def __init__(self, problem: str, remedy: str, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        super().__init__("dim", problem, remedy)


class ConfigurationError(PipelineError):
    """A configuration file that cannot be used; the subject is its path."""

    exit_code = 2


class CommandLineError(PipelineError):
    """A command line that cannot be used. Only scripts and ``common.cli`` raise it."""

    exit_code = 2


class UpstreamError(PipelineError):
    """A table of an earlier stage is missing, stale, corrupt or of another model."""

    exit_code = 3
