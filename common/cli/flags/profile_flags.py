"""Flags of a profile: how it is measured, or which recorded one is imported."""

from __future__ import annotations

from collections.abc import Sequence

from common.cli.flags import flag_types
from common.cli.flags.settings import Parser
from common.cli.flags.shared_flags import FILE, MODEL

MOST_SESSIONS = 1000  # each starts a process, one after the other


def run_flags(parser: Parser, default_runs: int, levels: Sequence[str], executions: Sequence[str]) -> None:
    """Add the model, how many runs there are, and of which session; the usual way to execute nodes is the first one."""
    parser.shared(*MODEL)
    text = f"unprofiled runs (default: {default_runs})"
    parser.setting("--runs", type=flag_types.at_least(5), metavar="N", help=text)
    text = "measuring time instead of a run count: 30s, 10m, 500ms"
    parser.setting("--duration", type=flag_types.duration, metavar="T", help=text)
    text = "number of sessions, each after the first in a new process; confidence limits include their differences"
    parser.setting("--sessions", type=flag_types.between(1, MOST_SESSIONS), default=1, metavar="N", help=text)
    parser.shared("--warmup", "--threads", "--provider")
    text = "nodes one after another, or independent ones at once"
    parser.setting("--execution", choices=executions, default=executions[0], help=text)
    text = "threads of parallel execution: one waits, the others compute nodes at once (default: 3)"
    parser.setting("--inter-threads", type=flag_types.at_least(1), metavar="N", help=text)
    parser.shared("--optimization", choices=levels, metavar=None)
    parser.shared("--run-timeout", "--seed")


def sensor_flags(parser: Parser) -> None:
    text = "readings per second of each sensor"
    parser.setting("--sensor-rate-hz", type=flag_types.positive_float, default=10.0, metavar="HZ", help=text)
    text = "time during which the idle power is sampled before the runs"
    parser.setting("--idle", type=flag_types.duration, default=2.0, metavar="T", help=text)
    text = "folder of the RAPL counters, if not the system's"
    parser.setting("--powercap-root", type=flag_types.path, metavar="FOLDER", help=text)


def import_flags(parser: Parser) -> None:
    """Add the files of a profile that was recorded elsewhere."""
    parser.setting("--from-trace", help="import a profile recorded elsewhere (ONNX Runtime, …)", **FILE)
    parser.setting("--executed-graph", help="graph that the recorded session saved", **FILE)
    text = "import a profile even if little of it matches the model"
    parser.setting("--accept-partial", action="store_true", help=text)


def qnn_file_flags(parser: Parser) -> None:
    """Add the files that QNN wrote about a profile of an NPU."""
    parser.setting("--qnn-csv", help="profile that QNN wrote as CSV, instead of a model", **FILE)
    parser.setting("--schematic", help="the compiler's schematic of the same session (*_schematic.bin)", **FILE)
    parser.setting("--qhas", help="QNN HTP analysis summary of qnn-profile-viewer, as JSON", **FILE)
    parser.setting("--op-trace", help="qnn_op_trace.json of the same session: which nodes QNN fused", **FILE)
    text = "number of the graph, if a profile holds several"
    parser.setting("--graph", type=flag_types.non_negative_int, metavar="N", help=text)
    text = "use a QHAS even if few of its nodes are in the profile"
    parser.setting("--accept-partial", action="store_true", help=text)
