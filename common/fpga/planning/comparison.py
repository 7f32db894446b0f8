"""What a plan is held against, and the same question asked in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from common.errors import CommandLineError
from common.fpga.device.board import PLAN_PRECISIONS, Board
from common.fpga.kernels.overlay import OverlayEngine
from common.fpga.planning.assumptions import require_speedup
from common.fpga.planning.plan import Plan, Request
from common.fpga.speedup.terms import SpeedupRow


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of the comparison; None is unknown or not computed."""

    alternative: str
    board: str
    precision: str
    clock_mhz: float
    plan_status: str | None
    plan_latency_pessimistic_us: float | None
    plan_latency_likely_us: float | None
    plan_latency_optimistic_us: float | None
    latency_speedup_factor: float | None
    energy_speedup_factor: float | None


def compared(name: str, plan: Plan, rows: Sequence[SpeedupRow]) -> Compared:
    """A plan, with what it gains."""
    request, terms = plan.request, {(row.objective, row.term): row for row in rows}
    pessimistic, likely, optimistic = (schedule.finish_us for schedule in plan.schedules)
    return Compared(
        name,
        request.board.name,
        request.precision,
        request.board.clock_mhz,
        plan.status,
        pessimistic,
        likely,
        optimistic,
        terms["latency", "total_speedup"].likely,
        terms["energy", "total_speedup"].likely,
    )


def yardsticks(plan: Plan) -> list[Compared]:
    """What else could have been done with the same engines, in the likely case."""
    host_us = plan.workload.host.latency_us
    found = {"host alone": host_us}
    if plan.status is not None:  # with speedups that were given, only the plan's own calls have them
        found |= {
            "greedy": plan.greedy_us,
            "rule of thumb": plan.rule_us,
            "proven bound": plan.solution.bound_us,
        }
    request = plan.request
    where = (request.board.name, request.precision, request.board.clock_mhz)
    return [Compared(name, *where, None, None, us, None, host_us / us, None) for name, us in found.items()]


def asked_instead(
    request: Request,
    text: str,
    board_of: Callable[[str], Board],
    overlay_of: Callable[[Board], OverlayEngine | None],
) -> Request:
    """The request with other values, given as ``board=u50,precision=int8,clock-mhz=250,K1=3.2``.

    What the text does not name stays; but speedups given for the kernels of one board, number format and clock
    say nothing of those of another.

    Args:
        request: what was asked.
        text: what is asked instead.
        board_of: the board of a name.
        overlay_of: the overlay engine that was asked for, as it stands on a board.

    Raises:
        CommandLineError: a key or a value is unknown.
    """
    board, precision, clock_mhz = request.board, request.precision, None
    given: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key == "board":
            board = board_of(value)
        elif key == "precision" and value in PLAN_PRECISIONS:
            precision = value
        elif key == "clock-mhz":
            clock_mhz = _positive(text, value)
        elif key[:1] == "K" and key[1:].isdigit():
            given[key] = require_speedup(_positive(text, value))
        else:
            known = f"board=NAME, precision={'|'.join(PLAN_PRECISIONS)}, clock-mhz=MHZ, K1=SPEEDUP"
            raise CommandLineError("--what-if", f"{part.strip()!r} is none of its words", f"it takes {known}")
    overlay = request.overlay if board is request.board else overlay_of(board)
    overlay = overlay if precision == "int8" else None
    if clock_mhz is not None:  # of the board that is asked for, whichever stands first
        board = board.clocked(clock_mhz)
    same = board == request.board and precision == request.precision
    speedups = {**(request.given_speedups if same else {}), **given}
    return replace(request, board=board, precision=precision, given_speedups=speedups, overlay=overlay)


def _positive(text: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise CommandLineError("--what-if", f"{text!r}: {value!r} is no positive number")
    return number
