"""The front of plans as text: the best for latency, throughput and energy, by batch."""

from __future__ import annotations

from common.table_rows import OffloadFrontRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, joules, significant


def front_label(row: OffloadFrontRow) -> str:
    """Return what a plan is best for, its batch, and whether it needs no card: ``throughput, stream, batch 4``."""
    return f"{_name(row)}, batch {row['inference_count']}{'' if row['engines'] else ', host alone'}"


def _name(row: OffloadFrontRow) -> str:
    return f"{row['objective']}{', stream' * (row['operation'] == 'streaming')}"


def _energy(row: OffloadFrontRow) -> str:
    energy_uj = row["inference_energy_likely_uj"]
    return MISSING if energy_uj is None else joules(energy_uj)


FRONT: Table[OffloadFrontRow] = Table(
    TableColumn("best for (* front)", lambda row: _name(row) + " *" * row["is_on_front"]),
    TableColumn("batch", lambda row: str(row["inference_count"])),
    TableColumn("in flight", lambda row: str(row["in_flight_count"])),
    TableColumn("latency", lambda row: duration(row["batch_latency_likely_us"])),
    TableColumn("rate", lambda row: f"{significant(row['likely_inferences_per_s'])}/s"),
    TableColumn("energy of one", _energy),
    TableColumn("engines", lambda row: str(len(row["engines"]))),
)
