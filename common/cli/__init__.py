"""Frame of every script: flags, the precedence flag > configuration > default, streams and exit codes.

stdout carries the table the user came for; stderr carries progress, notes and what was written. Exit codes: 0 done,
1 failed, 2 command line, 3 an upstream table is missing, stale or of another model, 4 a threshold
is broken, 130 interrupted.
"""

from common.cli.flags.flag_types import (
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
from common.cli.flags.settings import (
    DEFAULT_CONFIG,
    DEFAULT_OUT,
    ROOT,
    Parser,
    Settings,
    ceilings_path,
    given_flags,
    parse,
)
from common.cli.flags.settings_file import configured_bindings
from common.cli.flags.shared_flags import DECODER, MODEL
from common.cli.models import GivenModel, given_model, model_path, phase_of
from common.cli.search import DesignWatch, SearchWatch
from common.cli.stage import StageRun, parsed, stage
from common.cli.streams import BROKE_THRESHOLD, progress_bar, run, run_command, say, show

__all__ = [
    "BROKE_THRESHOLD",
    "DECODER",
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
    "phase_of",
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
