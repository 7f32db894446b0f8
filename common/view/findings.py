"""What the view is given: tables, documents, and what every stage said of its own work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from common.view.key_nodes import KeyNode, rank_nodes

RANKED_IN = ("op_roofline", "ops_profile", "op_schedule")


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What the sidecar of a stage's artifacts says."""

    script: str
    command: str
    model_id: str
    model_path: str
    host: Mapping[str, Any]
    tools: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that stood in the folder. ``notes`` say what was absent, stale or corrupt."""

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: tuple[StageRecord, ...] = ()
    notes: tuple[str, ...] = ()

    def keys(self) -> tuple[KeyNode, ...]:
        """The nodes that every picture and table numbers alike."""
        ranked = next((self.tables[name] for name in RANKED_IN if name in self.tables), None)
        return () if ranked is None else rank_nodes(ranked)

    def setting(self, script: str, name: str) -> Any:
        """What a stage was told, or None."""
        told = (stage.settings.get(name, {}).get("value") for stage in self.stages if stage.script == script)
        return next(told, None)
