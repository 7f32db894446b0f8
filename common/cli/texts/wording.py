"""Replace the names of quantities and tables in messages of rooms by flags and scripts.

A room names a quantity or a table in angle brackets: ``<peak_flops>``, ``<op_metrics>``. Only this module turns such a
name into a flag of the running stage, into the flag of another stage with its script, or into the script that writes
the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from common.artifacts.stages import STAGES, WRITER

NAME = re.compile(r"<([a-z][a-z0-9_]*)>")
# The script of two flags in a row, such as `07_fpga_candidates.py --host-tables or 07_fpga_candidates.py --host-scale`.
SCRIPT_AGAIN = re.compile(r"(\d\d_\w+\.py) (--[a-z0-9-]+)(,? (?:or|and) |, )\1 (--)")
EVERY_STAGE = {"out": "--out FOLDER", "config": "--config FILE"}


def plain(text: str, flags: Mapping[str, str] | None = None) -> str:
    """Replace every known name in a room's text; ``flags`` are those of the running stage, by setting."""

    def spelled(match: re.Match[str]) -> str:
        name = match[1]
        if flags and name in flags and name not in EVERY_STAGE:
            return flags[name]
        return EVERY_STAGE.get(name) or WRITER.get(name) or _flag_elsewhere(name) or match[0]

    return SCRIPT_AGAIN.sub(r"\1 \2\3\4", NAME.sub(spelled, text))


def flag(setting: str) -> str:
    """Spelling of a setting on the command line: ``mem_bw`` is ``--mem-bw``."""
    return f"--{setting.replace('_', '-')}"


def _flag_elsewhere(name: str) -> str:
    """Script and flag of the first stage that has the setting."""
    return next((f"{stage.script} {flag(name)}" for stage in STAGES.values() if name in stage.settings), "")
