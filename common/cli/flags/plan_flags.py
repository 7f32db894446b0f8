"""Flags of the scripts that plan, by subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from common.cli.flags import flag_types
from common.cli.flags.settings import ROOT, Parser
from common.cli.flags.shared_flags import AMOUNT, FILE


def board_flags(parser: Parser, precisions: Sequence[str], usual: str, launches: Sequence[str]) -> None:
    """Add the board, the number formats that it may compute in, the usual format, and how kernels may be launched."""
    parser.shared("--board", default="u280")
    parser.setting("--precision", default=usual, choices=precisions, help="number format of the kernels")
    text = "plan in two formats: the layers that 28 left in float (precision_mixtures.csv) get this wider format"
    parser.setting("--mixed-with", choices=precisions, help=text)
    text = "launch a kernel for each group, or for each phase on the card"
    parser.setting("--launch-per", choices=launches, help=text)


def search_flags(parser: Parser, more: str = "") -> None:
    """Add the flags that end a search, and the file with their defaults and with those of ``more`` flags."""
    text = "end the search for all plans after this processor time, and keep the best plans so far with their gaps"
    parser.setting("--time-limit", metavar="SECONDS", help=text, **AMOUNT)
    text = "limit of each search, in the solver's deterministic seconds per 1,000 host steps"
    parser.setting("--effort", metavar="X", help=text, **AMOUNT)
    text = f"YAML file with the defaults of --launch-per, --time-limit{',' if more else ' and'} --effort{more}"
    parser.setting("--fpga-config", default=ROOT / "configs" / "fpga.yaml", help=text, **FILE)


def threshold_flags(parser: Parser) -> None:
    """Add the thresholds of the rule of thumb."""
    text = "rule of thumb: a class of groups goes to the card from this {} on"
    share: dict[str, Any] = {"type": flag_types.share, "metavar": "X"}
    parser.setting("--min-share", help=text.format("share of the latency or energy"), **share)
    parser.setting("--min-intensity-flop-per-byte", metavar="X", help=text.format("arithmetic intensity"), **AMOUNT)
    parser.setting("--min-fused-share", help=text.format("share of traffic saved by fusing"), **share)


def question_flags(parser: Parser, speedup: Callable[[str], tuple[str, float]], batch: Callable[[str], int]) -> None:
    """Add what else is asked of the plan; ``speedup`` and ``batch`` read their texts."""
    text = "measured or simulated speedup of a kernel of the plan over the host, instead of the modelled one"
    parser.setting("--kernel-speedup", type=speedup, action="append", metavar="K1=3.2", help=text)
    text = "make another plan to compare with: board, precision, clock-mhz, launch-per or K1 (a speedup); repeatable"
    parser.setting("--what-if", action="append", metavar="KEY=VALUE,…", help=text)
    text = "also plan batches of 2, 4, 8 and so on up to N, for latency, throughput and energy"
    parser.setting("--batch", type=batch, default=1, metavar="N", help=text)


def host_flags(parser: Parser, factor: Callable[[str], Any]) -> None:
    """Add where the times of the board's host come from; ``factor`` reads the text of the factor on the profile."""
    text = "factor from the profiled times to those of the board's host: 8, 6..10 or 6..8..10, the smallest first"
    parser.setting("--host-scale", type=factor, metavar="FACTOR", help=text)
    parser.setting("--host-scale-source", metavar="TEXT", help="source of the factor; --host-scale needs it")
    text = "folder with the tables of 01 to 05 that were measured on the board's own processor"
    parser.setting("--host-tables", type=flag_types.path, metavar="FOLDER", help=text)


def design_flags(parser: Parser) -> None:
    """Add the engines that the plan may use beside its own arrays, and the folder that it is handed off in."""
    parser.shared("--engine", help="overlay engine that the plan may use: a name in configs/engines, or a YAML file")
    text = "folder with design_engines.csv of 29, whose arrays the plan may use, too; a plan without them is added"
    parser.setting("--designs", type=flag_types.path, metavar="FOLDER", help=text)
    text = "also write the design into a new folder: specifications, Verilog, C++, connectivity and schedule; the plan"
    text += " then has no chains, so its gain may be lower"
    parser.setting("--hand-off", type=flag_types.path, metavar="FOLDER", help=text)
