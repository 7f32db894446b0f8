"""The engines by name, and the package that each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from common.design_space.engines import (
    cma_engine,
    gradient_engine,
    nevergrad_engine,
    optuna_engine,
    random_engine,
    two_step_engine,
)
from common.design_space.engines.problem import Engine
from common.errors import PipelineError

EXACT = "exact"  # proposes nothing: it goes through the whole space
FA_DOSA = "fa-dosa"  # likewise: it descends a model of its own, for accelerators with one buffer
PROPOSING: Mapping[str, Engine] = {
    "gradient": gradient_engine.propose,
    "two-step": two_step_engine.propose,
    "random": random_engine.propose,
    "cma": cma_engine.propose,
    "nevergrad": nevergrad_engine.propose,
    "optuna": optuna_engine.propose,
}
ENGINES = (EXACT, FA_DOSA, *PROPOSING)
PACKAGES = {FA_DOSA: "torch", "gradient": "torch", "cma": "cma", "nevergrad": "nevergrad", "optuna": "optuna"}


def is_installed(name: str) -> bool:
    """Return whether the package of an engine is there."""
    return name not in PACKAGES or find_spec(PACKAGES[name]) is not None


def require_installed(name: str) -> None:
    """Refuse an engine whose package is not there.

    Raises:
        PipelineError: it is not.
    """
    if not is_installed(name):
        raise PipelineError(PACKAGES[name], "is not installed", "run: pip install -r requirements-search.txt")


def engine(name: str) -> Engine:
    """Return an engine that proposes.

    Raises:
        PipelineError: its package is not installed.
    """
    require_installed(name)
    return PROPOSING[name]
