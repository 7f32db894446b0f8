"""Energy of an inference as text: the total with its source, the largest nodes, and the cost of a million."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from common.table_rows import EfficiencyDocument, EnergySummaryDocument, OpsProfileRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, joules, percent, quantity, significant

TOP = 10
PARTS = ("compute_energy_uj", "movement_energy_uj", "static_energy_uj")


def energy_report(
    profile: Sequence[OpsProfileRow],
    run_us: float,
    summary: EnergySummaryDocument,
    efficiency: EfficiencyDocument,
    million: Mapping[str, Mapping[str, Any] | None],
    *,
    labels: Mapping[str, str],
) -> str:
    """Return the totals, the largest nodes, the efficiency, and the cost of a million inferences.

    ``million`` is what these emit and cost: ``gco2e``, ``energy_usd``, ``host_usd``, each with ``likely``, ``low`` and
    ``high``.
    """
    of_peak = "" if efficiency["peak_share"] is None else f" ({percent(efficiency['peak_share'])} of peak)"
    lines = [
        f"energy of one inference   {joules(summary['energy_uj'])} ({summary['energy_source']}), "
        f"{joules(summary['energy_low_uj'])} to {joules(summary['energy_high_uj'])}",
        f"average power             {quantity(summary['average_power_w'], 'W')} over {duration(run_us)}",
        f"static power              {quantity(summary['static_power_w'], 'W')} ({summary['static_power_source']})",
        f"closure factor            {_number(summary['closure_factor'])} (dynamic energy over the energy model's)",
        "",
        node_table(profile, summary, labels),
        "",
        f"attained                  {quantity(efficiency['whole_model_flop_per_s'], 'FLOP/s')}{of_peak}, "
        f"{quantity(efficiency['efficiency_flop_per_s_per_w'], 'FLOP/s/W')}",
        f"inferences per joule      {_number(efficiency['inferences_per_joule'])}",
        *_million_lines(million),
    ]
    return "\n".join(lines)


def node_table(profile: Sequence[OpsProfileRow], summary: EnergySummaryDocument, labels: Mapping[str, str]) -> str:
    """Return the nodes that take most energy, the others in one row, and the total."""
    columns: Table[OpsProfileRow] = Table(
        TableColumn("node", lambda row: labels[row["executed_node"]]),
        TableColumn("op", lambda row: row["op_type"], is_left=True),
        TableColumn("energy", lambda row: joules(row["energy_uj"])),
        TableColumn("share", lambda row: percent(row["energy_share"])),
        TableColumn("compute", lambda row: joules(row["compute_energy_uj"])),
        TableColumn("movement", lambda row: joules(row["movement_energy_uj"])),
        TableColumn("static", lambda row: joules(row["static_energy_uj"])),
    )
    ranked = sorted(profile, key=lambda row: -(row["energy_uj"] or 0.0))
    last = []
    if others := ranked[TOP:]:
        energy, share, *parts = (_known_sum(others, name) for name in ("energy_uj", "energy_share", *PARTS))
        last.append([f"({len(others)} more)", "", joules(energy), percent(share), *map(joules, parts)])
    totals_uj = summary["compute_energy_uj"], summary["movement_energy_uj"], summary["static_energy_uj"]
    share = _known_sum(profile, "energy_share")
    last.append(["(one inference)", "", joules(summary["energy_uj"]), percent(share), *map(joules, totals_uj)])
    return columns.text(ranked[:TOP], last=last)


def _known_sum(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """Return the sum of the known figures; None where none is known."""
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def _number(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else significant(value)


def _million_lines(million: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    labels = {
        "gco2e": ("million inferences emit", "g CO2e"),
        "energy_usd": ("  their energy costs", "USD"),
        "host_usd": ("  their host time costs", "USD"),
    }
    lines = []
    for key, (label, unit) in labels.items():
        figure = million[key] or {}
        likely, low, high = (_number(figure.get(end)) for end in ("likely", "low", "high"))
        lines.append(f"{label:<25} {likely} {unit}, {low} to {high}")
    return lines
