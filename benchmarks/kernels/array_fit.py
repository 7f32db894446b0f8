"""Fits of what published arrays take beyond the model's equations: rates of a call, and cells of fp32 elements.

Every family of designs weighs the same, and priors from documents hold what the designs do not determine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import log
from statistics import fmean
from typing import TypeVar

from benchmarks.kernels.array_designs import Counted, Rates, Timed
from benchmarks.kernels.overlay_fit import Prior
from common.fpga.kernels.systolic.array_models import FloatLogic

# Steps of the search, around what the overlay's fit believes: shares of the cycles, cycles of a call.
SHARES, CALLS = tuple(0.80 + 0.01 * step for step in range(21)), tuple(range(100, 3001, 100))
RATE_PRIORS = (Prior(0.9, 0.07), Prior(2131.0, 0.8))
# Cells of a multiply-accumulate, around those of its two operators (configs/dataflow.yaml), and of an element.
PER_MAC, PER_ELEMENT = tuple(range(300, 901, 10)), tuple(range(100, 2001, 20))
LOGIC_PRIORS = (Prior(349.0, 0.5), Prior(500.0, 1.0))
SPREAD = 0.1  # standard deviation of the logarithm of published over modelled, within a family

Point = TypeVar("Point", Timed, Counted)


def fit_rates(points: Sequence[Timed]) -> Rates:
    """Return the most probable rates under their priors and the points, every family alike."""

    def loss(rates: Rates) -> float:
        return _loss(points, lambda point: point.ratio(rates)) + _prior((rates.share, rates.call), RATE_PRIORS)

    return min((Rates(*pair) for pair in product(SHARES, CALLS)), key=loss)


def fit_logic(points: Sequence[Counted]) -> FloatLogic:
    """Return the most probable cells of a floating-point multiply-accumulate and of an element, every family alike."""
    own = [point for point in points if point.logic is not None]

    def loss(logic: FloatLogic) -> float:
        return _loss(own, lambda point: point.ratio(logic)) + _prior((logic.per_mac, logic.per_element), LOGIC_PRIORS)

    return min((FloatLogic(*pair) for pair in product(PER_MAC, PER_ELEMENT)), key=loss)


def _loss(points: Sequence[Point], ratio: Callable[[Point], float]) -> float:
    """Return the squared logarithms in units of ``SPREAD``, averaged in each family and summed over the families."""
    families = {point.family for point in points}
    own = ([log(ratio(point)) / SPREAD for point in points if point.family == family] for family in families)
    return sum(fmean(error * error for error in errors) for errors in own)


def _prior(values: Sequence[float], priors: Sequence[Prior]) -> float:
    return sum((log(value / prior.median) / prior.spread) ** 2 for value, prior in zip(values, priors, strict=True))
