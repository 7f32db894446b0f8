"""Input of the pictures, the report and the summary: tables, documents, and a record of each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, cast

from common.messages.names import printable
from common.table_rows import Documents, Tables
from common.view.executed_nodes import KeyNode, RankedRow, rank_nodes
from common.view.marks import Marks
from common.view.node_labels import labels_of
from common.view.text import duration, percent

COMPARED = {"executed_node", "item", "finding_subject"}  # columns of names that are compared: escaped, two may be one


@dataclass(frozen=True, slots=True)
class StageRecord:
    script: str
    writes: tuple[str, ...]
    command: str
    model_id: str
    model_path: str
    host: Mapping[str, Any]
    tools: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]


class Origin(NamedTuple):
    """The measured model, the processor of its host, and the threads and the provider that ran it."""

    model: str
    model_id: str
    processor: str
    runtime: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was read from a folder, with names as they can be shown; notes on what was absent or corrupt."""

    tables: Tables = field(default_factory=lambda: cast("Tables", {}))
    documents: Documents = field(default_factory=lambda: cast("Documents", {}))
    stages: tuple[StageRecord, ...] = ()
    notes: tuple[str, ...] = ()
    _labels: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Escape what models and users brought, except in ``COMPARED``: all pictures and texts are made of it."""
        for name in ("tables", "documents", "stages", "notes"):
            object.__setattr__(self, name, _shown(getattr(self, name)))

    def labels(self) -> Mapping[str, str]:
        """Return the label of every executed node in any table, by its full name; they are made once."""
        if not self._labels:
            for nodes in (*self._ranked(), self.tables.get("critical_path", ())):
                # tables of another model have other nodes
                self._labels.update(labels_of(row for row in nodes if row["executed_node"] not in self._labels))
        return self._labels

    def _ranked(self) -> list[Sequence[RankedRow]]:
        """Return the tables that rank nodes, those that say most of a node first."""
        tables = self.tables.get("op_roofline"), self.tables.get("ops_profile"), self.tables.get("op_schedule")
        return [table for table in tables if table is not None]

    def key_nodes(self) -> tuple[KeyNode, ...]:
        """Return the slowest nodes, which all pictures and tables number alike."""
        return rank_nodes(next(iter(self._ranked()), ()), self.labels())

    def numbers(self) -> dict[str, int]:
        """Return a number for each executed node, by which the report joins pictures and tables."""
        return {name: number for number, name in enumerate(self.labels(), start=1)}

    def on_card(self) -> set[str] | None:
        """Return the executed nodes that the plan computes on the card, at least in part; None without a plan."""
        if "fpga_candidates" not in self.tables or "offload_plan" not in self.tables:
            return None
        chosen = {name for row in self.tables["fpga_candidates"] if row["is_chosen"] for name in row["executed_nodes"]}
        return {name for name in self.labels() if printable(name) in chosen}

    def marks(self) -> Marks:
        """Return the numbers of nodes, of what the plan computes together, and what pictures say of each node."""
        labels, numbers = self.labels(), self.numbers()
        shown = {printable(name): number for name, number in numbers.items()}
        of_names: dict[str, list[int]] = {name: [number] for name, number in numbers.items()}
        for row in self.tables.get("fpga_candidates", ()):
            of_names.setdefault(row["candidate"], [shown[name] for name in row["executed_nodes"] if name in shown])
        facts = {
            numbers[row["executed_node"]]: f"{labels[row['executed_node']]}: {', '.join(_facts_of(row))}"
            for row in next(iter(self._ranked()), ())
        }
        return Marks(of_names, {number: facts.get(number, labels[name]) for name, number in numbers.items()})

    def writer(self, artifact: str) -> StageRecord | None:
        return next((stage for stage in self.stages if artifact in stage.writes), None)

    def origin(self) -> Origin:
        """Return which model was measured where; a field that no record has is empty."""
        model = next((stage for stage in self.stages if stage.model_id), None)
        measured, latency = self.writer("latency_summary"), self.documents.get("latency_summary")
        return Origin(
            model.model_path if model else "",
            model.model_id[:12] if model else "",
            str(measured.host.get("cpu_model", "")) if measured else "",
            f"{latency['threads']} threads, {latency['provider']}" if latency else "",
        )

    def setting(self, artifact: str, name: str) -> Any:
        """Return a setting of the stage that writes an artifact, or None where no record has it."""
        stage = self.writer(artifact)
        return stage.settings.get(name, {}).get("value") if stage else None


def _facts_of(row: RankedRow) -> list[str]:
    """Return operator, time and share of the roof of an executed node, as far as its table has them."""
    cells = cast("Mapping[str, Any]", row)
    facts = [str(cells["op_type"]), duration(row["node_latency_us"])]
    facts += [f"{percent(cells['latency_share'])} of the latency"] if "latency_share" in cells else []
    facts += [f"{percent(cells['roof_share'], 0)} of its roof"] if cells.get("roof_share") is not None else []
    return [*facts, f"{cells['bound']}-bound"] if cells.get("bound") else facts


def _shown(value: Any) -> Any:
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable(str(key)): item if key in COMPARED else _shown(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(_shown, value))
        case StageRecord():
            return StageRecord(*(_shown(getattr(value, entry.name)) for entry in fields(value)))
    return value
