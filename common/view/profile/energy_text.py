"""Energy of an inference as text: the total with its source, the largest nodes, and the cost of a million."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.text import MISSING, duration, joules, percent, quantity, significant, table

TOP = 10
_CAUSES = ("compute", "movement", "static")


def energy_report(
    profile: pd.DataFrame,
    run_us: float,
    summary: Mapping[str, Any],
    efficiency: Mapping[str, Any],
    million: Mapping[str, Mapping[str, Any] | None],
    *,
    labels: Mapping[str, str],
) -> str:
    """Return the totals, the largest nodes, the efficiency, and the cost of a million inferences.

    Args:
        profile: ops_profile.
        run_us: latency of one inference.
        summary: energy_summary.
        efficiency: efficiency.
        million: what a million inferences emit and cost: ``gco2e``, ``energy_usd``, ``host_usd``, each with ``likely``,
            ``low`` and ``high``.
        labels: of every executed node.
    """
    lines = [
        f"energy of one inference   {joules(summary['energy_uj'])} ({summary['energy_source']}), "
        f"{joules(summary['energy_low_uj'])} to {joules(summary['energy_high_uj'])}",
        f"average power             {quantity(summary['average_power_w'], 'W')} over {duration(run_us)}",
        f"static power              {quantity(summary['static_power_w'], 'W')} ({summary['static_power_source']})",
        f"closure factor            {_number(summary['closure_factor'])} (known over modelled dynamic energy)",
        "",
        node_table(profile, summary, labels),
        "",
        f"attained                  {quantity(efficiency['whole_model_flop_per_s'], 'FLOP/s')} "
        f"({percent(efficiency['peak_share'])} of peak), "
        f"{quantity(efficiency['efficiency_flop_per_s_per_w'], 'FLOP/s/W')}",
        f"inferences per joule      {_number(efficiency['inferences_per_joule'])}",
        *_million_lines(million),
    ]
    return "\n".join(lines)


def node_table(profile: pd.DataFrame, summary: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return the nodes that take most energy, the rest in one row, and the total."""
    ranked = profile.sort_values("energy_uj", ascending=False, kind="stable")
    rows = [
        _row(labels[cells["executed_node"]], cells["op_type"], cells) for cells in ranked.head(TOP).to_dict("records")
    ]
    rest = ranked.iloc[TOP:]
    if len(rest):
        columns = ["energy_uj", "energy_share", *(f"{cause}_energy_uj" for cause in _CAUSES)]
        rows.append(_row(f"({len(rest)} more)", "", rest[columns].sum(min_count=1).to_dict()))
    rows.append(_row("(one inference)", "", {**summary, "energy_share": profile["energy_share"].sum(min_count=1)}))
    return table(("node", "op", "energy", "share", *_CAUSES), rows, left=(0, 1))


def _row(name: str, op_type: str, cells: Mapping[Any, Any]) -> list[str]:
    causes = [joules(cells[f"{cause}_energy_uj"]) for cause in _CAUSES]
    return [name, op_type, joules(cells["energy_uj"]), percent(cells["energy_share"]), *causes]


def _number(value: float | None) -> str:
    return MISSING if value is None or pd.isna(value) else significant(value)


def _million_lines(million: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    lines = []
    for key, label, unit in (
        ("gco2e", "million inferences emit", "g CO2e"),
        ("energy_usd", "  their energy costs", "USD"),
        ("host_usd", "  their host time costs", "USD"),
    ):
        figure = million[key] or dict.fromkeys(("likely", "low", "high"))
        span = f"{_number(figure['low'])} to {_number(figure['high'])}"
        lines.append(f"{label:<25} {_number(figure['likely'])} {unit}, {span}")
    return lines
