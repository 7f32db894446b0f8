"""Frame of every script: flags, the precedence flag > configuration > default, streams and exit codes.

stdout carries the table the user came for; stderr carries progress, notes and what was written. Exit codes: 0 done, 1
failed, 2 command line, 3 a table is missing, stale or of another model, 4 a threshold is broken, 130 interrupted.
"""

from common.cli.flags.flag_types import assignment as assignment
from common.cli.flags.flag_types import at_least as at_least
from common.cli.flags.flag_types import binding as binding
from common.cli.flags.flag_types import duration as duration
from common.cli.flags.flag_types import factor as factor
from common.cli.flags.flag_types import non_negative_int as non_negative_int
from common.cli.flags.flag_types import path as path
from common.cli.flags.flag_types import paths as paths
from common.cli.flags.flag_types import positive_float as positive_float
from common.cli.flags.flag_types import positive_int as positive_int
from common.cli.flags.flag_types import positive_ints as positive_ints
from common.cli.flags.flag_types import share as share
from common.cli.flags.settings import DEFAULT_CONFIG as DEFAULT_CONFIG
from common.cli.flags.settings import DEFAULT_OUT as DEFAULT_OUT
from common.cli.flags.settings import ROOT as ROOT
from common.cli.flags.settings import Parser as Parser
from common.cli.flags.settings import Settings as Settings
from common.cli.flags.settings import ceilings_path as ceilings_path
from common.cli.flags.settings import given_flags as given_flags
from common.cli.flags.settings import parse as parse
from common.cli.flags.settings_file import configured_bindings as configured_bindings
from common.cli.flags.shared_flags import DECODER as DECODER
from common.cli.flags.shared_flags import MODEL as MODEL
from common.cli.models import GivenModel as GivenModel
from common.cli.models import given_model as given_model
from common.cli.models import model_path as model_path
from common.cli.models import phase_of as phase_of
from common.cli.search import DesignWatch as DesignWatch
from common.cli.search import SearchWatch as SearchWatch
from common.cli.stage import StageRun as StageRun
from common.cli.stage import parsed as parsed
from common.cli.stage import stage as stage
from common.cli.streams import BROKE_THRESHOLD as BROKE_THRESHOLD
from common.cli.streams import progress_bar as progress_bar
from common.cli.streams import run as run
from common.cli.streams import run_command as run_command
from common.cli.streams import say as say
from common.cli.streams import show as show
