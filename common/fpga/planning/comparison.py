"""Alternatives to a plan: baselines with the same engines, and plans for what-if questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from common.errors import UnusableValueError
from common.fpga.device.board import PLAN_PRECISIONS, Board
from common.fpga.kernels.overlay import OverlayEngine
from common.fpga.planning.assumptions import KERNEL_NAME, require_speedup
from common.fpga.planning.plan import Plan, Request
from common.fpga.planning.problem_builder import LAUNCH_PER, LaunchPer
from common.fpga.speedup.amdahl import SpeedupRow
from common.names import quoted, shown


@dataclass(frozen=True, slots=True)
class Alternative:
    """One row of the comparison; None is unknown or not computed."""

    alternative: str
    board: str
    precision: str
    clock_mhz: float
    launch_per: LaunchPer
    plan_status: str | None
    plan_latency_pessimistic_us: float | None
    plan_latency_likely_us: float | None
    plan_latency_optimistic_us: float | None
    latency_speedup_factor: float | None
    energy_speedup_factor: float | None


def alternative(name: str, plan: Plan, rows: Sequence[SpeedupRow]) -> Alternative:
    request, terms = plan.request, {(row.objective, row.term): row for row in rows}
    pessimistic, likely, optimistic = (schedule.finish_us for schedule in plan.schedules)
    return Alternative(
        name,
        request.board.name,
        request.precision,
        request.board.clock_mhz,
        request.launch_per,
        plan.status,
        pessimistic,
        likely,
        optimistic,
        terms["latency", "total_speedup"].likely,
        terms["energy", "total_speedup"].likely,
    )


def baselines(plan: Plan) -> list[Alternative]:
    """Return the baselines of a plan in the likely case: the host alone, two simpler plans, and the proven bound.

    If kernel speedups are given, only the calls of the plan have them, so the host is the only baseline.
    """
    host_us = plan.workload.host.latency_us
    finishes = {"host alone": host_us}
    if plan.status is not None:
        finishes |= {
            "greedy": plan.greedy_us,
            "rule of thumb": plan.rule_us,
            "proven bound": plan.solution.bound_us,
        }
    request = plan.request
    where = (request.board.name, request.precision, request.board.clock_mhz, request.launch_per)
    return [
        Alternative(name, *where, None, None, finish_us, None, host_us / finish_us, None)
        for name, finish_us in finishes.items()
    ]


def what_if_request(
    request: Request,
    text: str,
    board_of: Callable[[str], Board],
    overlay_of: Callable[[Board], OverlayEngine | None],
) -> Request:
    """Return the request with the values of a what-if question, ``board=u50,precision=int8,launch-per=phase,K1=3.2``.

    Values that the text does not name stay, with one exception: kernel speedups are given for the kernels of one
    board, number format, clock and way to launch, and do not hold for another.

    Args:
        request: the request to change.
        text: the question.
        board_of: returns the board of a name.
        overlay_of: returns the requested overlay engine on a board.

    Raises:
        UnusableValueError: a key or a value is unknown.
    """
    values = _values(text)
    board = _board(board_of, values["board"]) if "board" in values else request.board
    precision = values.get("precision", request.precision)
    launch_per = next(mode for mode in LAUNCH_PER if mode == values.get("launch-per", request.launch_per))
    overlay = request.overlay if board is request.board else overlay_of(board)
    if "clock-mhz" in values:  # applied last, to the board of the question
        board = board.clocked(_positive(text, values["clock-mhz"]))
    is_same = (board, precision, launch_per) == (request.board, request.precision, request.launch_per)
    kernels = filter(KERNEL_NAME.fullmatch, values)
    given = {kernel: require_speedup(_positive(text, values[kernel])) for kernel in kernels}
    return replace(
        request,
        board=board,
        precision=precision,
        launch_per=launch_per,
        given_speedups={**(request.given_speedups if is_same else {}), **given},
        overlay=overlay if precision == "int8" else None,
    )


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key in values:
            raise UnusableValueError("what_if", f"{quoted(text)}: {shown(key)} is given more than once", "give it once")
        if not _is_known(key, value):
            formats, launches = "|".join(PLAN_PRECISIONS), "|".join(LAUNCH_PER)
            known = f"board=NAME, precision={formats}, clock-mhz=MHZ, launch-per={launches}, K1=SPEEDUP"
            raise UnusableValueError("what_if", f"{quoted(part.strip())} is unknown", f"known: {known}")
        values[key] = value
    return values


def _is_known(key: str, value: str) -> bool:
    choices: Mapping[str, Sequence[str]] = {"precision": PLAN_PRECISIONS, "launch-per": LAUNCH_PER}
    if key in choices:
        return value in choices[key]
    return key in ("board", "clock-mhz") or KERNEL_NAME.fullmatch(key) is not None


def _board(board_of: Callable[[str], Board], name: str) -> Board:
    try:
        return board_of(name)
    except UnusableValueError as error:
        raise UnusableValueError("what_if", f"board={shown(name)}: {error.problem}", error.remedy) from error


def _positive(text: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise UnusableValueError("what_if", f"{quoted(text)}: {quoted(value)} is no positive number")
    return number
