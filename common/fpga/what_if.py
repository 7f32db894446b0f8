"""The gain of the plan with another clock, link, number format or board: one change at a time, each planned again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from common.fpga.coefficients import Models
from common.fpga.device.board import PLAN_PRECISIONS, Board
from common.fpga.plan_results import planned_alternative
from common.fpga.planning.plan import make_plan
from common.fpga.planning.request import Request
from common.intervals import combine
from common.messages.errors import UnusableValueError
from common.table_rows import WhatIfPlansRow
from common.workload.formats import WiderLayers
from common.workload.workload import Workload

CLOCK_FACTORS = (0.5, 0.75, 1.25)
LINK_FACTORS = (0.25, 0.5, 2.0, 4.0)
PLAN, MIXTURE = "plan", "mixture"


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """One change of the request."""

    subject: str  # what changes: the plan itself, clock, link, precision, mixture of precisions or board
    setting: str  # its value, in words
    request: Request  # with that value
    mixture: int | None = None  # index of the mixture that is planned; None for a plan of one number format


def questions(
    request: Request, boards: Sequence[Board], notes: list[str], mixtures: Mapping[int, WiderLayers] | None = None
) -> list[PlanQuestion]:
    """Return the plan and every question; a question that cannot be asked of a board becomes a note.

    ``mixtures`` are layers in a wider format, by the index of the mixture that leaves them out.
    """
    board = request.board
    found = [PlanQuestion(PLAN, f"{board.name}, {request.precision}", request)]
    for factor in CLOCK_FACTORS:
        clock_mhz = factor * board.clock_mhz
        found.append(PlanQuestion("clock", f"{clock_mhz:g} MHz", replace(request, board=board.clocked(clock_mhz))))
    for factor in LINK_FACTORS:
        found.append(PlanQuestion("link", f"{factor:g}x the rate", replace(request, board=_linked(board, factor))))
    changes: dict[tuple[str, str], Mapping[str, object]] = {
        ("precision", name): {"precision": name} for name in PLAN_PRECISIONS if name != request.precision
    }
    changes |= {("board", other.name): {"board": other} for other in boards if other.name != board.name}
    for index, wider in (mixtures or {}).items():
        mixed = replace(request, wider=wider)
        found.append(PlanQuestion(MIXTURE, f"{index}: {request.precision} and {wider.precision}", mixed, index))
    for (subject, setting), change in changes.items():
        try:
            found.append(PlanQuestion(subject, setting, replace(request, **change)))  # type: ignore[arg-type]
        except UnusableValueError as error:
            notes.append(f"absent: the {subject} {setting} ({error.problem})")
    return found


def _linked(board: Board, factor: float) -> Board:
    rate = combine(lambda bytes_per_s: factor * bytes_per_s, board.link.bytes_per_s)
    return replace(board, link=replace(board.link, bytes_per_s=rate))


def what_if_rows(workload: Workload, asked: Sequence[PlanQuestion], models: Models) -> Iterator[WhatIfPlansRow]:
    """Yield the plan, and the plan of each question, with its gain over the host alone."""
    for question in asked:
        row = planned_alternative(PLAN, make_plan(workload, question.request, models), models)
        yield {
            "what_if_subject": question.subject,
            "what_if_setting": question.setting,
            "board": row["board"],
            "planned_mixture_index": question.mixture,
            "precision": row["precision"],
            "wider_precision": row["wider_precision"],
            "clock_mhz": row["clock_mhz"],
            "link_bytes_per_s": question.request.board.link.bytes_per_s.likely,
            "plan_status": row["plan_status"],
            "plan_latency_pessimistic_us": row["plan_latency_pessimistic_us"],
            "plan_latency_likely_us": row["plan_latency_likely_us"],
            "plan_latency_optimistic_us": row["plan_latency_optimistic_us"],
            "latency_speedup_factor": row["latency_speedup_factor"],
            "latency_speedup_p5_factor": row["latency_speedup_p5_factor"],
            "latency_speedup_p95_factor": row["latency_speedup_p95_factor"],
            "latency_pays_probability": row["latency_pays_probability"],
            "energy_speedup_factor": row["energy_speedup_factor"],
            "is_judged": row["is_judged"],
            "is_other_host": bool(question.request.host.mismatch(question.request.board)),
        }
