"""Input of the pictures, the report and the summary: tables, documents, and a record of each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pandas as pd

from common.names import printable
from common.view.key_nodes import KeyNode, rank_nodes
from common.view.marks import Marks
from common.view.node_labels import labels_of
from common.view.text import duration, percent

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
    _labels: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Escape what models and users brought, but for ``KEYS``: every picture and every text is made of this."""
        for name in ("tables", "documents", "stages", "notes"):
            object.__setattr__(self, name, _shown(getattr(self, name)))

    def labels(self) -> Mapping[str, str]:
        """Return the label of every executed node in any table, by its full name; they are made once."""
        if not self._labels:
            for nodes in (self.tables[name] for name in (*RANKED_IN, "critical_path") if name in self.tables):
                new = nodes[~nodes["executed_node"].isin(self._labels)]  # tables of another model have other nodes
                self._labels.update(labels_of(new))
        return self._labels

    def keys(self) -> tuple[KeyNode, ...]:
        """Return the slowest nodes, which all pictures and tables number alike."""
        ranked = next((self.tables[name] for name in RANKED_IN if name in self.tables), None)
        return () if ranked is None else rank_nodes(ranked, self.labels())

    def numbers(self) -> dict[str, int]:
        """Return a number for each executed node, by which the report joins pictures and tables."""
        return {name: number for number, name in enumerate(self.labels(), start=1)}

    def on_card(self) -> set[str] | None:
        """Return the executed nodes that the plan computes on the card, at least in part; None without a plan."""
        if "fpga_candidates" not in self.tables or "offload_plan" not in self.tables:
            return None
        candidates = self.tables["fpga_candidates"]
        chosen = {name for names in candidates.loc[candidates["is_chosen"], "executed_nodes"] for name in names}
        return {name for name in self.labels() if printable(name) in chosen}

    def marks(self) -> Marks:
        """Return the numbers of nodes, of what the plan computes together, and what pictures say of each node."""
        labels, numbers = self.labels(), self.numbers()
        shown = {printable(name): number for name, number in numbers.items()}
        of_names: dict[str, list[int]] = {name: [number] for name, number in numbers.items()}
        if "fpga_candidates" in self.tables:
            columns = (self.tables["fpga_candidates"][name] for name in ("candidate", "executed_nodes"))
            for candidate, names in zip(*columns, strict=True):
                of_names.setdefault(candidate, [shown[name] for name in names if name in shown])
        facts = {numbers[name]: f"{labels[name]}{more}" for name, more in self._facts().items()}
        return Marks(of_names, {number: facts.get(number, labels[name]) for name, number in numbers.items()})

    def _facts(self) -> dict[str, str]:
        """Return operator, time and share of the roof of each executed node, by name."""
        ranked = next((self.tables[name] for name in RANKED_IN if name in self.tables), None)
        rows = [] if ranked is None else ranked.to_dict("records")
        return {row["executed_node"]: f": {', '.join(_facts_of(row))}" for row in rows}

    def writer(self, artifact: str) -> StageRecord | None:
        """Return the record of the stage that writes an artifact."""
        return next((stage for stage in self.stages if artifact in stage.writes), None)

    def setting(self, artifact: str, name: str) -> Any:
        """Return a setting of the stage that writes an artifact, or None where no record has it."""
        stage = self.writer(artifact)
        return stage.settings.get(name, {}).get("value") if stage else None


def _facts_of(row: Mapping[Any, Any]) -> list[str]:
    facts = [str(row["op_type"]), duration(row["node_latency_us"])]
    facts += [f"{percent(row['latency_share'])} of the latency"] if "latency_share" in row else []
    facts += [f"{percent(row['roof_share'], 0)} of its roof"] if pd.notna(row.get("roof_share")) else []
    return [*facts, f"{row['bound']}-bound"] if row.get("bound") else facts


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
