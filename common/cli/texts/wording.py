"""Replace the names of quantities and tables in messages of rooms by flags and scripts, and propose command lines.

A room names a quantity or a table in angle brackets: ``<peak_flops>``, ``<op_metrics>``. Only this module turns it into
a flag of the running stage, a flag of another stage with its script, or the script that writes the table.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

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
        elsewhere = (f"{stage.script} {flag(name)}" for stage in STAGES.values() if name in stage.settings)
        return EVERY_STAGE.get(name) or WRITER.get(name) or next(elsewhere, match[0])

    return SCRIPT_AGAIN.sub(r"\1 \2\3\4", NAME.sub(spelled, text))


def flag(setting: str) -> str:
    """Spelling of a setting on the command line: ``mem_bw`` is ``--mem-bw``."""
    return f"--{setting.replace('_', '-')}"


def paired_command(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    """Return the command that measures in turn what two measurements measured one by one; without a model, a script."""
    script, models = WRITER["paired_comparison"], [side.get("model") for side in (baseline, candidate)]
    if not all(models):
        return script
    words = [script, flag("ab"), *map(str, models)]
    words += [word for name, size in baseline.get("dim") or () for word in (flag("dim"), f"{name}={size}")]
    words += [word for given in baseline.get("input") or () for word in (flag("input"), _assigned(given))]
    for name in ("threads", "provider", "optimization"):
        before, after = baseline.get(name), candidate.get(name)
        words += [flag(name), str(before)] if before is not None else []
        words += [flag("b_with"), f"{name}={after}"] if after not in (None, before) else []
    return shlex.join(words)


def _assigned(given: Any) -> str:
    """Spell the value of an input as it was given: a file, or a name with one."""
    return given if isinstance(given, str) else "=".join(map(str, given))


def mend_command(model: str, rule: str) -> str:
    """Return the command that mends what a rule found in a model, and measures the gain."""
    return shlex.join(["python", WRITER["mend_trials"], flag("model"), model, flag("rule"), rule])
