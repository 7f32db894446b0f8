"""Shapes that a node ran with: one combination as a rule; in a body they may differ from pass to pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_VARIANTS = 4096  # a node may run with other shapes each time; events with further ones are not counted


@dataclass(slots=True)
class ShapeVariant:
    """Operands and outputs as the trace describes them, and the events that ran with them."""

    described: tuple[Any, Any]
    event_count: int = 0


@dataclass(slots=True)
class TracedShapes:
    """Every combination of shapes that a node ran with."""

    variants: dict[str, ShapeVariant] = field(default_factory=dict)
    latest: ShapeVariant | None = None

    def add(self, args: Mapping[str, Any]) -> None:
        described = args.get("input_type_shape"), args.get("output_type_shape")
        if self.latest is None or described != self.latest.described:
            key = repr(described)
            if key not in self.variants and len(self.variants) == MOST_VARIANTS:
                return
            self.latest = self.variants.setdefault(key, ShapeVariant(described))
        self.latest.event_count += 1

    def rows(self) -> list[list[Any]]:
        """Return shapes of operands, shapes of outputs and events of each combination; none where there is only one."""
        if len(self.variants) < 2:
            return []
        return [[*map(shapes, variant.described), variant.event_count] for variant in self.variants.values()]


def shapes(described: Any) -> list[Any]:
    """Turn ``[{"float": [1, 3]}]`` into ``[[1, 3]]``."""
    return [shape for entry in described or [] for shape in entry.values()]
