"""The request of a plan, its defaults (configs/fpga.yaml), and the requests of what-if questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from common.files.configuration import Section
from common.fpga.array_designs import ArrayDesign
from common.fpga.device.board import AI_ENGINE_FORMATS, PLAN_PRECISIONS, Board
from common.fpga.device.board_files import load_board
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.overlay.engine_files import load_engine
from common.fpga.offload.baselines import Thresholds
from common.fpga.offload.effort import Effort, Endless, Watch
from common.fpga.planning.host_basis import HostBasis
from common.fpga.planning.problem_builder import LAUNCH_PER, LaunchPer
from common.graphs.number_formats import PRECISION_BITS
from common.messages.errors import UnusableValueError
from common.messages.names import quoted, shown
from common.workload.formats import WiderLayers

THRESHOLDS = ("min_share", "min_intensity_flop_per_byte", "min_fused_share")
Objective = Literal["latency", "throughput"]
OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput")
KERNEL_NAME = re.compile(r"K[1-9][0-9]{0,3}")
LARGEST_BATCH = 1024  # every doubling is a plan of its own
LEAST_SPEEDUP, LARGEST_SPEEDUP = 1e-3, 1e6  # of a kernel over the host; a value outside is a mistake


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a plan."""

    board: Board
    precision: str  # number format of the kernels
    launch_per: LaunchPer  # whether the host launches each group, or each phase on the card
    thresholds: Thresholds  # of the rule of thumb, a baseline
    given_speedups: Mapping[str, float]  # known speedups of kernels over the host, by kernel name
    effort: Effort
    overlay: OverlayEngine | None = None  # an overlay engine that the plan may use besides the engines of the catalogue
    watch: Watch = field(default_factory=Endless)  # ends the search when its time is up, and hears how far it has come
    host: HostBasis = field(default_factory=HostBasis)
    # What the reader asks for first; ``throughput`` also fills the board with several arrays
    objective: Objective = "latency"
    designs: tuple[ArrayDesign, ...] = ()  # arrays for the board, of which the plan may use the quickest
    has_own_arrays: bool = True  # whether the plan may use arrays of the catalogue as well
    wider: WiderLayers | None = None  # layers that the plan computes in a wider format than ``precision``
    # Whether a call may compute several groups, whose tensors stay on the chip; not in a hand-off
    has_chains: bool = True

    @property
    def formats(self) -> tuple[str, ...]:
        return (self.precision,) if self.wider is None else (self.precision, self.wider.precision)

    def __post_init__(self) -> None:
        """Refuse values that no plan can have, wherever they came from."""
        for quantity, value, allowed in (
            ("precision", self.precision, PLAN_PRECISIONS),
            ("launch_per", self.launch_per, LAUNCH_PER),
            *([("mixed_with", self.wider.precision, PLAN_PRECISIONS)] if self.wider else []),
        ):
            if value not in allowed:
                raise UnusableValueError(quantity, f"{quoted(value)} is unknown", f"known: {', '.join(allowed)}")
        if (engines := self.board.ai_engines) is not None and self.precision in AI_ENGINE_FORMATS:
            problem = (
                f"{self.board.name} computes {self.precision} in its {engines.count} AI engines, which have no model: "
                f"a plan of its DSPs alone would understate it; {engines.published}"
            )
            raise UnusableValueError("board, precision", problem, "give another board, or bf16 or int4 for the DSPs")
        if self.wider is not None and PRECISION_BITS[self.wider.precision] <= PRECISION_BITS[self.precision]:
            problem = f"{self.wider.precision} is no wider than {self.precision}"
            raise UnusableValueError("mixed_with", problem, "give a wider number format")
        if self.wider is not None and self.objective == "throughput":
            problem = "does not go with an objective of throughput: the arrays of a stream have one format"
            raise UnusableValueError("mixed_with", problem, "leave one of them out")
        if self.overlay is not None and self.precision != "int8":
            problem = f"{self.overlay.name} computes in int8 only"
            raise UnusableValueError("engine", problem, "give <precision> int8 with it")


@dataclass(frozen=True, slots=True)
class Requests:
    """The request of a plan, and those of its what-if questions by their text."""

    request: Request
    what_if: Mapping[str, Request] = field(default_factory=dict)

    def with_designs(self, designs: tuple[ArrayDesign, ...]) -> Requests:
        """Add arrays for the board and the number format of the request; a question about another has none."""

        def is_same(question: Request) -> bool:
            return (question.board, question.precision) == (self.request.board, self.request.precision)

        return self._each(lambda question: replace(question, designs=designs if is_same(question) else ()))

    def with_wider(self, wider: WiderLayers | None) -> Requests:
        """Add layers in a wider format; a question about another number format has none."""
        precision = self.request.precision
        return self._each(lambda question: replace(question, wider=wider if question.precision == precision else None))

    def without_chains(self) -> Requests:
        return self._each(lambda question: replace(question, has_chains=False))

    def of_host(self, host: HostBasis) -> Requests:
        return self._each(lambda question: replace(question, host=host))

    def _each(self, change: Callable[[Request], Request]) -> Requests:
        return Requests(change(self.request), {text: change(question) for text, question in self.what_if.items()})


def read_kernel_speedup(text: str) -> tuple[str, float]:
    """Return the kernel and the speedup of ``K1=3.2``; UnusableValueError: the text is no such pair."""
    name, _, value = text.partition("=")
    try:
        speedup = float(value)
    except ValueError:
        problem = f"{quoted(text)} is no kernel with a speedup"
        raise UnusableValueError("kernel_speedup", problem, "give for example K1=3.2") from None
    kernel = name.strip().upper()
    if not KERNEL_NAME.fullmatch(kernel):
        raise UnusableValueError("kernel_speedup", f"{quoted(kernel)} is no kernel", "known: K1, K2 and so on")
    return kernel, require_speedup(speedup)


def require_speedup(value: float) -> float:
    if not LEAST_SPEEDUP <= value <= LARGEST_SPEEDUP:
        limits = f"give {LEAST_SPEEDUP:g} to {LARGEST_SPEEDUP:g}"
        raise UnusableValueError("kernel_speedup", f"{value:g} is no speedup of a kernel", limits)
    return value


def read_batch(text: str) -> int:
    """Return the largest batch to plan for; UnusableValueError: the text is no such number."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= LARGEST_BATCH:
        raise UnusableValueError("batch", f"{quoted(text)} is no batch to plan for", f"give 1 to {LARGEST_BATCH}")
    return count


def read_assumptions(file: Section) -> dict[str, Any]:
    """Return the default of each setting that the file gives.

    A ConfigurationError says that a key is missing or unknown, or a number is unusable or has no source.
    """
    limits = file.section("thresholds")
    defaults: dict[str, Any] = {name: limits.constant(name, positive=False).likely for name in THRESHOLDS}
    defaults["launch_per"] = file.choice("launch_per", LAUNCH_PER)
    for name in ("time_limit", "effort"):
        defaults[name] = file.number(name)
        if defaults[name] <= 0:
            raise file.error(name, f"is {defaults[name]:g}, which is no search time", "give a positive number")
    file.close()
    return defaults


def plan_requests(values: Mapping[str, Any], configs: Path, watch: Watch) -> Requests:
    """Return the request of a plan, and those of its what-if questions.

    Args:
        values: by quantity, with the defaults of :func:`read_assumptions`; without kernel speedups, a batch, an
            engine, an objective or what-if questions, it is one plan for latency on engines of the catalogue.
        configs: folder with the files of boards and of overlay engines.
        watch: ends all searches, and hears of them.

    Raises:
        UnusableValueError: a value is unknown, or two of them do not go together.
        ConfigurationError: the file of a board or an engine cannot be used.
    """
    speedups, engine = values.get("kernel_speedup") or [], values.get("engine")
    if speedups and values.get("batch", 1) > 1:
        problem = "does not go with <kernel_speedup>: it holds for one inference"
        raise UnusableValueError("batch", problem, "leave one of them out")

    def board_of(name: str) -> Board:
        return load_board(name, configs / "boards")

    def overlay_of(board: Board) -> OverlayEngine | None:
        return load_engine(engine, configs / "engines", board) if engine is not None else None

    board = board_of(values["board"])
    request = Request(
        board,
        values["precision"],
        values["launch_per"],
        Thresholds(*(values[name] for name in THRESHOLDS)),
        dict(speedups),
        Effort(values["effort"]),
        overlay_of(board),
        watch,
        objective=next(name for name in OBJECTIVES if name == values.get("objective", "latency")),
    )
    questions = values.get("what_if") or []
    return Requests(request, {text: what_if_request(request, text, board_of, overlay_of) for text in questions})


def what_if_request(
    request: Request, text: str, board_of: Callable[[str], Board], overlay_of: Callable[[Board], OverlayEngine | None]
) -> Request:
    """Return the request with the values of a what-if question, ``board=u50,precision=int8,launch-per=phase,K1=3.2``.

    Values that the text does not name stay, with one exception: kernel speedups are given for the kernels of one
    board, number format, clock and way to launch, and do not hold for another.

    An UnusableValueError says that a key or a value is unknown.
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
