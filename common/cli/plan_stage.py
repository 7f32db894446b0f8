"""The common part of the scripts that plan: their flags, by subject, and the tables of the host that a plan is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.folder import Folder, is_there
from common.cli import flags
from common.cli.settings import ROOT, Parser
from common.cli.shared_flags import AMOUNT, FILE
from common.errors import CommandLineError
from common.names import shown

if TYPE_CHECKING:
    from common.table_rows import Documents, Tables

CONFIGS = ROOT / "configs"
TABLES = ("op_metrics", "op_edges", "node_map", "op_latency", "ops_profile", "op_schedule")
DOCUMENTS = ("latency_summary", "energy_summary")
Work = TypeVar("Work")


def board_flags(parser: Parser, precisions: Sequence[str], usual: str, launches: Sequence[str]) -> None:
    """Add the board, the number formats that it may compute in with the usual one, and how kernels may be launched."""
    parser.shared("--board", default="u280")
    parser.setting("--precision", default=usual, choices=precisions, help="number format of the kernels")
    text = "launch a kernel for each group, or for each phase on the card"
    parser.setting("--launch-per", choices=launches, help=text)


def search_flags(parser: Parser, more: str = "") -> None:
    """Add when a search ends, and the file with the defaults, which gives ``more`` flags their defaults, too."""
    text = "end the search for all plans after this processor time, as Ctrl-C does: best plans so far, and their gaps"
    parser.setting("--time-limit", metavar="SECONDS", help=text, **AMOUNT)
    text = "end each search after this work per 1,000 steps of the host, in the solver's deterministic seconds"
    parser.setting("--effort", metavar="X", help=text, **AMOUNT)
    text = f"YAML file with the defaults of --launch-per, --time-limit{',' if more else ' and'} --effort{more}"
    parser.setting("--fpga-config", default=CONFIGS / "fpga.yaml", help=text, **FILE)


def threshold_flags(parser: Parser) -> None:
    """Add the thresholds of the rule of thumb."""
    text = "rule of thumb: smallest {} at which a class of groups goes to the card"
    share = text.format("share of the latency or energy")
    parser.setting("--min-share", type=flags.share, metavar="X", help=share)
    intensity = text.format("arithmetic intensity")
    parser.setting("--min-intensity-flop-per-byte", metavar="X", help=intensity, **AMOUNT)
    fused = text.format("share of the traffic that fusing saves")
    parser.setting("--min-fused-share", type=flags.share, metavar="X", help=fused)


def require_host_tables(folder: Path) -> None:
    """Refuse a folder that lacks a table of the board's own processor, before anything is measured for the plan."""
    files = [folder / ARTIFACTS[name].file for name in (*TABLES, *DOCUMENTS)]
    if missing := next((file for file in files if not is_there(file)), None):
        raise CommandLineError("<host_tables>", f"{shown(missing)}: not found", "run 01 to 05 on the board itself")


def work_of_host(folder: Folder, build: Callable[[Tables, Documents, Sequence[str]], Work]) -> tuple[Work, str]:
    """Return the work that is built of the tables of a host and the notes on them, and the name of its processor."""
    rows, documents = folder.tables(TABLES), folder.documents(DOCUMENTS)
    profile = folder.provenance("latency_summary")
    with folder.content():
        return build(rows, documents, profile.notes), profile.host.get("cpu_model", "")
