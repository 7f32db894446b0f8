"""The front of plans as text: the best for latency, throughput and energy, by batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.text import MISSING, duration, joules, significant, table


def front_label(row: Mapping[Any, Any]) -> str:
    """Return what a plan is best for, and its batch: ``throughput, stream, batch 4``."""
    return f"{_name(row)}, batch {row['inference_count']}"


def _name(row: Mapping[Any, Any]) -> str:
    return f"{row['objective']}{', stream' * (row['operation'] == 'streaming')}"


def front_table(front: pd.DataFrame) -> str:
    """Return a line for each plan in the likely case; a star marks those that no other one beats.

    Args:
        front: offload_front.
    """
    rows = [
        [
            _name(row) + " *" * row["is_on_front"],
            str(row["inference_count"]),
            str(row["in_flight_count"]),
            duration(row["batch_latency_likely_us"]),
            f"{significant(row['likely_inferences_per_s'])}/s",
            MISSING if pd.isna(row["inference_energy_likely_uj"]) else joules(row["inference_energy_likely_uj"]),
            str(len(row["engines"])),
        ]
        for row in front.to_dict("records")
    ]
    header = ("best for (* front)", "batch", "in flight", "latency", "rate", "energy of one", "engines")
    return table(header, rows)
