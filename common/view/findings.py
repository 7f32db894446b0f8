"""Input of the pictures, the report and the summary: tables, documents, and a record of each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pandas as pd

from common.names import printable
from common.view.key_nodes import KeyNode, rank_nodes
from common.view.node_labels import labels_of

KEYS = ["executed_node", "item", "finding_subject"]  # compared, so they stay as they are: escaped, two names may be one
RANKED_IN = ("op_roofline", "ops_profile", "op_schedule")


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage as the sidecar of its artifacts records it."""

    script: str
    writes: tuple[str, ...]
    command: str
    model_id: str
    model_path: str
    host: Mapping[str, Any]
    tools: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was read from a folder, with names as they can be shown; executed nodes have labels for that.

    ``notes`` name what was absent, stale or corrupt.
    """

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: tuple[StageRecord, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Escape what models and users brought, but for ``KEYS``: every picture and every text is made of this."""
        for name in ("tables", "documents", "stages", "notes"):
            object.__setattr__(self, name, _shown(getattr(self, name)))

    def labels(self) -> dict[str, str]:
        """Return the label of every executed node in any table, by its full name."""
        labels: dict[str, str] = {}
        for nodes in (self.tables[name] for name in (*RANKED_IN, "critical_path") if name in self.tables):
            labels |= labels_of(nodes[~nodes["executed_node"].isin(labels)])  # tables of another model have other nodes
        return labels

    def keys(self) -> tuple[KeyNode, ...]:
        """Return the slowest nodes, which all pictures and tables number alike."""
        ranked = next((self.tables[name] for name in RANKED_IN if name in self.tables), None)
        return () if ranked is None else rank_nodes(ranked, self.labels())

    def writer(self, artifact: str) -> StageRecord | None:
        """Return the record of the stage that writes an artifact."""
        return next((stage for stage in self.stages if artifact in stage.writes), None)

    def setting(self, artifact: str, name: str) -> Any:
        """Return a setting of the stage that writes an artifact, or None where no record has it."""
        stage = self.writer(artifact)
        return stage.settings.get(name, {}).get("value") if stage else None


def _shown(value: Any) -> Any:
    """Return a value of any kind with all texts in it printable."""
    match value:
        case str():
            return printable(value)
        case pd.DataFrame():
            texts = value.select_dtypes(exclude=["number", "bool"]).drop(columns=KEYS, errors="ignore")
            return value.assign(**{str(name): [_shown(cell) for cell in texts[name]] for name in texts})
        case Mapping():
            return {printable(str(key)): _shown(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(_shown, value))
        case StageRecord():
            return StageRecord(*(_shown(getattr(value, entry.name)) for entry in fields(value)))
    return value
