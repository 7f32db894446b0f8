"""A lower bound from the linear relaxation of a constraint program, by HiGHS (scipy)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from common.fpga.offload.effort import Spending

LinearRow = tuple[dict[int, float], float, float]  # coefficients by variable, lower and upper bound
TIME_GRAIN = 1000.0  # time enters in microseconds, which keeps the matrix well scaled
UNBOUNDED = 1 << 60
TOLERANCE = 1e-6  # relative, of HiGHS's answer


def lower_bound(model: Any, objective: Any, budget: Spending | None = None) -> int:
    """Return a lower bound of the objective over all solutions of the model; 0 if HiGHS finds none in time."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    proto = model.proto
    ends = np.array([(variable.domain[0], variable.domain[len(variable.domain) - 1]) for variable in proto.variables])
    grain = np.where(ends[:, 1] > 1, TIME_GRAIN, 1.0)
    matrix, low, high = _matrix(list(_linear_rows(proto)), grain)
    below, above = np.isfinite(high), np.isfinite(low)
    cost = np.zeros(len(grain))
    cost[objective.index] = 1.0
    both = vstack([matrix[below], -matrix[above]], format="csr")
    limits = np.concatenate([high[below], -low[above]])
    relaxed = (budget or Spending(math.inf)).wait_for(
        lambda: linprog(cost, A_ub=both, b_ub=limits, bounds=ends / grain[:, None], method="highs")
    )
    found = relaxed is not None and relaxed.status == 0
    return math.floor(relaxed.fun * TIME_GRAIN * (1 - TOLERANCE)) if found else 0


def _matrix(rows: Sequence[LinearRow], grain: Any) -> tuple[Any, Any, Any]:
    """Return the rows as a sparse matrix with their bounds, each row divided by its largest coefficient."""
    import numpy as np
    from scipy.sparse import csr_matrix

    columns = [column for coefficients, _, _ in rows for column in coefficients]
    values = np.array([value for coefficients, _, _ in rows for value in coefficients.values()]) * grain[columns]
    begins = np.cumsum([0, *(len(coefficients) for coefficients, _, _ in rows)])
    largest = np.maximum.reduceat(np.abs(values), begins[:-1])
    largest[largest == 0] = 1.0
    values = values / np.repeat(largest, np.diff(begins))
    low, high = (np.array([row[end] for row in rows]) / largest for end in (1, 2))
    return csr_matrix((values, columns, begins), shape=(len(rows), len(grain))), low, high


def _linear_rows(proto: Any) -> Iterator[LinearRow]:
    """Yield the constraints that are linear: unconditional sums, implications between literals, and exactly-one."""
    for constraint in proto.constraints:
        conditions = list(constraint.enforcement_literal)
        if constraint.has_exactly_one():
            yield _row(((literal, 1) for literal in constraint.exactly_one.literals), 1, 1)
        elif constraint.has_bool_and() and len(conditions) == 1:
            for literal in constraint.bool_and.literals:
                yield _row([(literal, 1), (conditions[0], -1)], 0, math.inf)
        elif constraint.has_linear() and not conditions and len(constraint.linear.vars):
            linear = constraint.linear
            low, high = linear.domain[0], linear.domain[len(linear.domain) - 1]
            terms = zip(linear.vars, linear.coeffs, strict=True)
            yield _row(terms, low if low > -UNBOUNDED else -math.inf, high if high < UNBOUNDED else math.inf)


def _row(terms: Iterable[tuple[int, float]], low: float, high: float) -> LinearRow:
    coefficients: dict[int, float] = {}
    for reference, factor in terms:
        if reference >= 0:
            coefficients[reference] = coefficients.get(reference, 0.0) + factor
            continue
        variable = -reference - 1  # a negated literal: 1 - variable
        low, high = low - factor, high - factor
        coefficients[variable] = coefficients.get(variable, 0.0) - factor
    return coefficients, low, high
