"""How to place a model with what stands behind the seams now, and what else could have been asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from common.errors import CommandLineError
from common.fpga.boards import PRECISION_BITS, Board
from common.fpga.figures import Outlook
from common.fpga.kernel_models import CeilingModel
from common.fpga.plan import LAUNCH_PER, LaunchPer, Plan, Terms, Workload, make_plan
from common.fpga.selection import Thresholds, ThresholdSelection


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for: a board, a number format, a way to make kernels, and the thresholds."""

    board: Board
    precision: str
    efficiency: str
    launch_per: LaunchPer
    thresholds: Thresholds
    given_speedups: Mapping[str, float]

    def __post_init__(self) -> None:
        """Refuse words that a configuration file may hold and no flag would take."""
        for flag, value, allowed in (
            ("--precision", self.precision, PRECISION_BITS),
            ("--launch-per", self.launch_per, LAUNCH_PER),
        ):
            if value not in allowed:
                raise CommandLineError(flag, f"{value!r} is unknown", f"it takes {', '.join(allowed)}")

    def terms(self, bands: Mapping[str, Outlook]) -> Terms:
        """The board's ceilings as kernel model, and the rule of ``selection`` as selection."""
        model = CeilingModel(self.board, self.precision, bands[self.efficiency])
        selection = ThresholdSelection(self.thresholds, self.precision, self.board.memory_capacity_bytes)
        return Terms(self.board, self.precision, model, selection, self.launch_per, self.given_speedups)


def alternative_plans(workload: Workload, asked: Request, bands: Mapping[str, Outlook]) -> dict[str, Plan]:
    """Plans that differ from what was asked in one point; a kernel speedup that was given holds for no other kernel."""
    estimated = replace(asked, given_speedups={})
    others = {
        f"precision {name}": replace(estimated, precision=name) for name in PRECISION_BITS if name != asked.precision
    }
    others |= {f"efficiency {name}": replace(estimated, efficiency=name) for name in bands if name != asked.efficiency}
    others |= {
        f"one launch per {name}": replace(asked, launch_per=name) for name in LAUNCH_PER if name != asked.launch_per
    }
    free = replace(asked.board, launch_us=Outlook.known(0.0))
    others["launch shared by a batch"] = replace(asked, board=free)
    return {name: make_plan(workload, other.terms(bands)) for name, other in others.items()}
