"""The integer operators of a lane: their cells by yosys are the figures of configs/dataflow.yaml."""

from __future__ import annotations

import pytest

from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.operators import OPERATORS
from common.fpga.rtl import programs
from common.fpga.rtl.generate import FOLDER
from common.fpga.rtl.synthesize import synthesize_module
from tests.support.kernels.dataflow_kernels import COSTS

needs_yosys = pytest.mark.skipif(not programs.is_there("yosys"), reason="no yosys: make rtl-tools")


@needs_yosys
@pytest.mark.parametrize("name", OPERATORS)
def test_the_figures_of_an_integer_operator_are_its_cells(name):
    cells = synthesize_module((FOLDER / "operators.v").read_text(encoding="utf-8"), name)
    assert COSTS.integer_operators[name] == Resources(cells.lut, cells.ff, cells.bram36, 0, cells.dsp)
