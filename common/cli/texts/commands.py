"""Command lines of other scripts, which a script proposes in what it prints."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from common.artifacts.stages import WRITER
from common.cli.texts import wording


def paired_command(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    """Return the command that measures in turn what two measurements measured one after the other.

    Args:
        baseline: settings of the measurement of the baseline, by name; without a model there is no more than a script.
        candidate: those of what is compared.
    """
    script, models = WRITER["paired_comparison"], [side.get("model") for side in (baseline, candidate)]
    if not all(models):
        return script
    words = [script, wording.flag("ab"), *map(str, models)]
    words += [word for name, size in baseline.get("dim") or () for word in (wording.flag("dim"), f"{name}={size}")]
    words += [word for given in baseline.get("input") or () for word in (wording.flag("input"), _assigned(given))]
    for name in ("threads", "provider", "optimization"):
        before, after = baseline.get(name), candidate.get(name)
        words += [wording.flag(name), str(before)] if before is not None else []
        words += [wording.flag("b_with"), f"{name}={after}"] if after not in (None, before) else []
    return shlex.join(words)


def _assigned(given: Any) -> str:
    """Spell the value of an input as it was given: a file, or a name with one."""
    return given if isinstance(given, str) else "=".join(map(str, given))


def mend_command(model: str, rule: str) -> str:
    """Return the command that mends what a rule found in a model, and measures the gain."""
    return shlex.join(["python", WRITER["mend_trials"], wording.flag("model"), model, wording.flag("rule"), rule])
