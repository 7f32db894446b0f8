"""The engines by name, and the package that each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from common.design_space.search.engines import drawing_engines, gradient_engine, package_engines
from common.design_space.search.problem import Engine
from common.design_space.search.settings import EXACT, FA_DOSA, ONCE, Search
from common.messages.errors import PipelineError, UnusableValueError

PROPOSING: Mapping[str, Engine] = {
    "gradient": gradient_engine.propose,
    "two-step": drawing_engines.propose_in_two_steps,
    "random": drawing_engines.propose_at_random,
    "cma": package_engines.propose_by_cma,
    "nevergrad": package_engines.propose_by_nevergrad,
    "optuna": package_engines.propose_by_optuna,
}
ENGINES = (EXACT, FA_DOSA, *PROPOSING)
PACKAGES = {FA_DOSA: "torch", "gradient": "torch", "cma": "cma", "nevergrad": "nevergrad", "optuna": "optuna"}


def is_installed(name: str) -> bool:
    return name not in PACKAGES or find_spec(PACKAGES[name]) is not None


def require_installed(name: str) -> None:
    """Raise PipelineError for an engine whose package is not there."""
    if not is_installed(name):
        raise PipelineError(PACKAGES[name], "is not installed", "run: pip install -r requirements-search.txt")


def engine(name: str) -> Engine:
    """Return an engine that proposes; PipelineError if its package is not installed."""
    require_installed(name)
    return PROPOSING[name]


def chosen_searches(values: Mapping[str, Any], *, has_one_buffer: bool) -> tuple[list[Search], list[str]]:
    """Return the searches to make: the one that was chosen, or one by each engine; and a note that names the others.

    Raises:
        UnusableValueError: an engine or an accounting is chosen where all engines are compared; weights may stay where
            another search is made, or where nothing may be resident.
        PipelineError: the package of the chosen engine is not installed.
    """
    budget, stay = (values["evaluations"], values["seed"], values["most_layers"]), values["weights_stay"]
    if stay:
        _require_weights_may_stay(values, has_one_buffer=has_one_buffer)
    if not values["experiments"]:
        require_installed(values["engine"])
        return [Search(values["engine"], *budget, values["accounting"], stay)], []
    if values["accounting"] == ONCE:
        problem = "compares schedules in accounting tiled"
        raise UnusableValueError("experiments", problem, "leave out <accounting>")
    if values["engine"] != EXACT:
        raise UnusableValueError("experiments", "runs every engine", "leave out <engine>")
    engines = [name for name in ENGINES if has_one_buffer or name != FA_DOSA]
    missing = [name for name in engines if not is_installed(name)]
    reasons = [] if has_one_buffer else [f"because it fuses in one buffer: {FA_DOSA}"]
    if missing:
        reasons.append(f"because not installed: {', '.join(missing)} (pip install -r requirements-search.txt)")
    searches = [Search(name, *budget) for name in engines if name not in missing]
    return searches, [f"not compared, {'; '.join(reasons)}"] * bool(reasons)


def _require_weights_may_stay(values: Mapping[str, Any], *, has_one_buffer: bool) -> None:
    causes = {
        "this one has one buffer": has_one_buffer,
        "<experiments> runs other searches": values["experiments"],
        f"<engine> {values['engine']} is another search": values["engine"] != EXACT,
        f"<most_layers> {values['most_layers']} keeps nothing on the chip": values["most_layers"] == 1,
    }
    for cause in (cause for cause, is_there in causes.items() if is_there):
        problem = f"weights stay in exact searches on an accelerator with several memories, and {cause}"
        raise UnusableValueError("weights_stay", problem, "leave it out")
