"""Frame of every script: flags, the precedence flag > configuration > default, streams and exit codes.

stdout carries the table the user came for; stderr carries progress, notes and what was written. Exit codes: 0 done,
1 failed, 2 command line, 3 an upstream table is missing, stale or of another model, 4 a comparison
found a regression above the given share, 130 interrupted.
"""

from common.cli.flags import (
    assignment,
    at_least,
    binding,
    duration,
    factor,
    non_negative_int,
    path,
    paths,
    positive_float,
    positive_int,
    positive_ints,
    share,
)
from common.cli.models import GivenModel, given_model, model_path
from common.cli.search import DesignWatch, SearchWatch
from common.cli.settings import (
    DEFAULT_CONFIG,
    DEFAULT_OUT,
    ROOT,
    Parser,
    Settings,
    ceilings_path,
    given_flags,
    parse,
)
from common.cli.settings_file import configured_bindings
from common.cli.shared_flags import MODEL
from common.cli.stage import StageRun, parsed, stage
from common.cli.streams import progress_bar, run, run_command, say, show

__all__ = [
    "DEFAULT_CONFIG",
    "DEFAULT_OUT",
    "MODEL",
    "ROOT",
    "DesignWatch",
    "GivenModel",
    "Parser",
    "SearchWatch",
    "Settings",
    "StageRun",
    "assignment",
    "at_least",
    "binding",
    "ceilings_path",
    "configured_bindings",
    "duration",
    "factor",
    "given_flags",
    "given_model",
    "model_path",
    "non_negative_int",
    "parse",
    "parsed",
    "path",
    "paths",
    "positive_float",
    "positive_int",
    "positive_ints",
    "progress_bar",
    "run",
    "run_command",
    "say",
    "share",
    "show",
    "stage",
]
