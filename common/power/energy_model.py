"""The named energy model: what arithmetic, movement and idling cost where no sensor says it.

E = Σ flops x pJ/FLOP(dtype) + Σ bytes x pJ/byte(memory level) + static power x time: the energy side of the roofline
(Choi, Bedard, Fowler, Vuduc, "A roofline model of energy", IPDPS 2013). The coefficients, each with its source and
bounds, stand in configs/energy.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.errors import CommandLineError

Bound = Literal["value", "low", "high"]
MEMORY_LEVELS = ("last_level_cache", "dram")
_MODEL_KEYS = ("description", "static_power_w_per_thread", "compute_pj_per_flop", "movement_pj_per_byte")
_FACTOR_KEYS = ("emissions_gco2e_per_kwh", "energy_price_usd_per_kwh", "host_price_usd_per_thread_hour")
_FIGURE_KEYS = ("value", "low", "high", "source")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that says how it is known, and how far it can be trusted."""

    value: float
    low: float
    high: float
    source: str

    def at(self, bound: Bound) -> float:
        """The figure itself, or one end of its interval."""
        return float(getattr(self, bound))

    def times(self, factor: float) -> Figure:
        """The figure of so many of these."""
        return Figure(self.value * factor, self.low * factor, self.high * factor, self.source)


def end_of(figure: Figure | None, bound: Bound) -> float | None:
    """One end of a figure, unknown where the figure is."""
    return None if figure is None else figure.at(bound)


def exactly(value: float | None) -> Figure | None:
    """What the user gives is taken as it is; None where nothing is given."""
    return None if value is None else Figure(value, value, value, "given")


@dataclass(frozen=True, slots=True)
class EnergyModel:
    """One class of host. Static power is per hardware thread in use, at the wall."""

    name: str
    static_power_w_per_thread: Figure
    compute_pj_per_flop: Mapping[str, Figure]
    movement_pj_per_byte: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class CostFactors:
    """What a kWh emits and costs, and what an hour of one hardware thread costs."""

    emissions_gco2e_per_kwh: Figure
    energy_price_usd_per_kwh: Figure
    host_price_usd_per_thread_hour: Figure


def energy_model(content: Mapping[str, Any], name: str, path: Path) -> EnergyModel:
    """The model ``name`` out of the content of ``path``.

    Raises:
        CommandLineError: no such model, a key that is missing or unknown, or a figure that is none.
    """
    models = _mapping(content.get("models"), f"{path}: models")
    if name not in models:
        raise CommandLineError(path, f"no energy model {name!r}", f"it has {', '.join(models)}")
    where = f"{path}: {name}"
    entry = _mapping(models[name], where, _MODEL_KEYS)
    levels = _mapping(entry["movement_pj_per_byte"], f"{where}: movement_pj_per_byte", MEMORY_LEVELS)
    dtypes = _mapping(entry["compute_pj_per_flop"], f"{where}: compute_pj_per_flop")
    return EnergyModel(
        name=name,
        static_power_w_per_thread=_figure(entry["static_power_w_per_thread"], f"{where}: static_power_w_per_thread"),
        compute_pj_per_flop={dtype: _figure(dtypes[dtype], f"{where}: {dtype}") for dtype in dtypes},
        movement_pj_per_byte={level: _figure(levels[level], f"{where}: {level}") for level in MEMORY_LEVELS},
    )


def cost_factors(content: Mapping[str, Any], path: Path) -> CostFactors:
    """The cost factors out of the content of ``path``.

    Raises:
        CommandLineError: a key that is missing or unknown, or a figure that is none.
    """
    entry = _mapping(content.get("factors"), f"{path}: factors", _FACTOR_KEYS)
    return CostFactors(**{key: _figure(entry[key], f"{path}: {key}", may_be_zero=True) for key in _FACTOR_KEYS})


def _mapping(value: Any, where: str, keys: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """A mapping that is not empty, with exactly ``keys`` if any are named."""
    if not isinstance(value, Mapping) or not value:
        raise CommandLineError(where, "is not a mapping", f"it takes {', '.join(keys) or 'names'}")
    missing = [key for key in keys if key not in value]
    unknown = [str(key) for key in value if keys and key not in keys]
    if missing or unknown:
        problem = f"lacks {missing[0]!r}" if missing else f"unknown key {unknown[0]!r}"
        raise CommandLineError(where, problem, f"it takes {', '.join(keys)}")
    return value


def _figure(value: Any, where: str, *, may_be_zero: bool = False) -> Figure:
    """A figure that is above 0: nothing physical is free, though a price may be."""
    entry = _mapping(value, where, _FIGURE_KEYS)
    numbers = [entry[key] for key in ("low", "value", "high")]
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        raise CommandLineError(where, "value, low and high must be numbers")
    is_ordered = 0 <= numbers[0] <= numbers[1] <= numbers[2] and math.isfinite(numbers[2])
    if not is_ordered or not (numbers[0] or may_be_zero):
        raise CommandLineError(where, f"must have 0 {'<=' if may_be_zero else '<'} low <= value <= high")
    source = entry["source"]
    if not isinstance(source, str) or not source.strip():
        raise CommandLineError(where, "has no source", "say where the figure comes from")
    low, middle, high = (float(number) for number in numbers)
    return Figure(middle, low, high, source)
