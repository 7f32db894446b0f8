"""Flags of comparisons, by subject."""

from __future__ import annotations

from common.cli.flags import flag_types
from common.cli.flags.settings import Parser
from common.cli.flags.shared_flags import REPEATED


def fail_flag(parser: Parser) -> None:
    """Add the slowdown above which a comparison fails."""
    text = "exit with code 4 at a slowdown above this share, such as 5%; a difference counts as unchanged if it is "
    text += "surely below this share (without the flag: below 5%)"
    parser.setting("--fail-above", type=flag_types.percentage, metavar="SHARE", help=text)


def folder_flags(parser: Parser) -> None:
    folders = REPEATED | {"type": flag_types.path, "metavar": "FOLDER"}
    text = "folder of the baseline's tables; repeatable, for repeats of one measurement"
    parser.setting("--baseline", help=text, **folders)
    parser.setting("--candidate", help="folder to compare with the baseline, instead of --out; repeatable", **folders)
    _across_models_flag(parser, "compare different models, by operator type")


def history_flags(parser: Parser) -> None:
    """Add which history is read, and how far back."""
    parser.setting("--history", type=flag_types.path, metavar="FILE", help="the history, to which `make record` adds")
    text = "number of newest records to compare"
    parser.setting("--last", type=flag_types.at_least(2), default=20, metavar="N", help=text)
    _across_models_flag(parser, "compare records of different models")


def record_flags(parser: Parser) -> None:
    """Add which history a record is added to, and of which commit."""
    text = "history to which the figures of --out are added; a new file if there is none"
    parser.setting("--append-to", type=flag_types.path, metavar="FILE", help=text)
    text = "commit that is recorded (default: that of the working tree around the current folder)"
    parser.setting("--commit", metavar="NAME", help=text)


def _across_models_flag(parser: Parser, text: str) -> None:
    parser.setting("--across-models", action="store_true", default=False, help=text)


def pair_flags(parser: Parser) -> None:
    """Add what says which two models are measured now, and how."""
    text = "measure two models, or one twice, run by run in turn"
    parser.setting("--ab", nargs=2, metavar=("A.onnx", "B.onnx"), help=text)
    text = "setting of B alone, such as threads=1, optimization=basic or provider=cpu; repeatable"
    parser.setting("--b-with", type=flag_types.assignment, metavar="NAME=VALUE", help=text, **REPEATED)
    text = "unprofiled runs of each model"
    parser.setting("--runs", type=flag_types.at_least(5), default=200, metavar="N", help=text)
    parser.shared("--warmup", "--dim", "--input", "--seed", "--threads", "--provider", "--optimization")
    parser.shared("--run-timeout")
