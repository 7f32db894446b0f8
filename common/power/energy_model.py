"""The energy models of hosts: what arithmetic and data movement of nodes cost, relative to each other.

``Σ flops x pJ/FLOP(dtype) + Σ bytes x pJ/byte(memory level)`` is the dynamic energy of the roofline (Choi, Bedard,
Fowler, Vuduc, "A roofline model of energy", IPDPS 2013). It divides the dynamic energy of a run over the nodes.
The energy of the whole run follows from the power of the host. configs/energy.yaml holds the coefficients, each with
its interval, source and trust mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from common.files.configuration import Constant, Section
from common.messages.errors import UnusableValueError
from common.messages.names import quoted

MEMORY_LEVELS = ("last_level_cache", "dram")


@dataclass(frozen=True, slots=True)
class EnergyModel:
    """Coefficients of one class of host."""

    name: str
    compute_pj_per_flop: Mapping[str, Constant]
    movement_pj_per_byte: Mapping[str, Constant]


@dataclass(frozen=True, slots=True)
class CostFactors:
    """Emissions and price of a kWh of electricity, and price of one hardware thread for an hour."""

    emissions_gco2e_per_kwh: Constant
    energy_price_usd_per_kwh: Constant
    host_price_usd_per_thread_hour: Constant


@dataclass(frozen=True, slots=True)
class EnergyConfiguration:
    """Every energy model of a file, by name, and its cost factors."""

    models: Mapping[str, EnergyModel]
    factors: CostFactors

    def model(self, name: str) -> EnergyModel:
        """Return one model; UnusableValueError: no model has this name."""
        if name not in self.models:
            known = ", ".join(self.models)
            raise UnusableValueError("energy_model", f"no energy model is called {quoted(name)}", f"known: {known}")
        return self.models[name]


def read_energy_configuration(file: Section) -> EnergyConfiguration:
    """Read the energy models and the cost factors of a file; errors are those of :class:`Section`."""
    models, factors = file.section("models"), file.section("factors")
    configuration = EnergyConfiguration(
        models={name: _model(name, models.section(name)) for name in models},
        factors=CostFactors(*(_cost(factors, field.name) for field in fields(CostFactors))),
    )
    file.close()
    return configuration


def _model(name: str, section: Section) -> EnergyModel:
    section.text("description")
    levels = section.section("movement_pj_per_byte")
    return EnergyModel(
        name=name,
        compute_pj_per_flop=section.constants("compute_pj_per_flop"),
        movement_pj_per_byte={level: levels.constant(level) for level in MEMORY_LEVELS},
    )


def _cost(factors: Section, key: str) -> Constant:
    cost = factors.constant(key, positive=False)
    if cost.low < 0:
        raise factors.error(key, "is negative")
    return cost
