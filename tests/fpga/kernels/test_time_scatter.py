"""Scatter of measured times around the likely one, from the intervals of the engines."""

from __future__ import annotations

from math import hypot, log

import pytest
from scipy.stats import t as student

from benchmarks.kernels.array_designs import MODELS
from benchmarks.kernels.overlay_fit import CONFIGS, configured
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports, attention, closing, rowwise, streaming
from common.fpga.kernels.systolic.array import build_array
from common.fpga.kernels.team import Team
from common.fpga.plan_odds import time_scatter

BOARD = load_board("u280", CONFIGS / "boards")
ARRAY = closing(build_array((32, 32, 8), "int8", array_ports(BOARD), 2, MODELS.systolic), BOARD, MODELS)


def test_a_team_scatters_as_its_members_do() -> None:
    assert time_scatter(Team(ARRAY, 3, 100.0)) == time_scatter(ARRAY)


def test_the_overlay_has_the_interval_of_its_file() -> None:
    engine = configured("dpu-b4096", "kv260")
    assert engine.kind == "overlay"
    assert time_scatter(engine) == engine.scatter
    assert engine.scatter.family_count == 6


def test_families_and_designs_give_the_interval() -> None:
    """Student's t with one degree of freedom less than families: the interval is that of a further family's design."""
    for scatter in (*MODELS.systolic.scatters.values(), configured("dpu-b4096", "kv260").scatter):
        quantile = float(student.ppf(0.95, scatter.family_count - 1))
        reach = quantile * hypot(scatter.family_sd, scatter.design_sd)
        assert log(scatter.band.pessimistic / scatter.band.optimistic) == pytest.approx(2 * reach, abs=0.01)


@pytest.mark.parametrize(
    "engine",
    [
        streaming(BOARD, "int8", MODELS),
        attention(BOARD, "int8", MODELS, 8, 64, 4096),
        rowwise(BOARD, "int8", MODELS, [], 0.125),
    ],
    ids=lambda engine: engine.kind,
)
def test_every_other_kind_scatters(engine) -> None:  # type: ignore[no-untyped-def]  # three kinds of engines
    assert time_scatter(engine).family_sd > 0.1
