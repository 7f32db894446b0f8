"""Copies between a streaming kernel, whose activations lie on a channel each, and kernels that use all of theirs."""

from __future__ import annotations

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import engines_for
from common.fpga.planning.problem_builder import COPIER_PORTS, CallWaits, converter_bytes_per_s
from common.workload.flows import TensorFlow
from common.workload.layers import Matmul
from common.workload.tasks import Task
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
# Group 1 reads an input of the model, writes a tensor that two groups read, and an output; group 2 reads one of both.
FLOWS = [
    TensorFlow("input", None, (1,), 4000, 1000, False),
    TensorFlow("between", 1, (2, 3), 8000, 2000, False),
    TensorFlow("output", 1, (), 400, 100, True),
    TensorFlow("other", 0, (2,), 1200, 300, False),
]


def engines():
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    task = Task("t", "gemm", (Matmul(1, 512, 512),), "int8", 512 * 512, 512, 512)
    return board, {engine.kind: engine for engine in engines_for(board, "int8", models, [task])}


def test_a_streaming_kernel_waits_for_copies_of_what_it_shares_with_other_groups():
    """Each is read and written once more, by one port each; inputs and outputs of the model are not."""
    board, found = engines()
    waits, rate = CallWaits(None, FLOWS, ["int8"] * 5, board), converter_bytes_per_s(board, COPIER_PORTS).likely
    for groups, shared in (((1,), 2000), ((2,), 2300), ((3,), 2000), ((1, 2), 2300), ((4,), 0)):
        _, copies = waits.us(groups, found["streaming"])
        assert copies.likely == pytest.approx(1e6 * 2 * shared / rate)
        (conversions,) = waits.us(groups, found["systolic"])
        assert conversions.likely == 0.0
