"""Every kernel that an estimate proposes by itself fits its board, or is refused in one line."""

from __future__ import annotations

from itertools import product

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.kernel_study.one_kernel import estimate_kernel, kernel_request
from common.messages.errors import UnusableValueError
from tests.support.paths import CONFIGS

BOARDS = ("kv260", "u200", "u250", "u280", "u50", "u55c", "ultra96", "v80", "vck190", "zcu102", "zcu104")
FORMATS = ("fp64", "fp32", "bf16", "int16", "int8", "int4")
WINDOW = {"kernel": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
KERNELS = (
    ("gemv", {"rows": 4096, "cols": 4096}),
    ("gemv", {"rows": 509, "cols": 1021, "vectors": 3}),
    ("gemm", {"m": 1040, "k": 1024, "n": 1024}),
    ("gemm", {"m": 61, "k": 127, "n": 31}),
    ("gemm", {"m": 16, "k": 64, "n": 67, "batch": 12}),
    ("conv", {"in_channels": 64, "height": 56, "out_channels": 64, **WINDOW}),
    ("conv", {"in_channels": 32, "height": 14, "out_channels": 32, "groups": 32, **WINDOW}),
    ("attention", {"heads": 12, "tokens": 1024}),
    ("attention", {"heads": 3, "tokens": 61, "head_dim": 17}),
    ("layernorm", {"rows": 1024, "width": 768}),
    ("softmax", {"rows": 12288, "width": 1024}),
    ("gelu", {"rows": 1024, "width": 3072}),
)
NO_ARRAY = "no systolic array of fp64 is modelled"


@pytest.fixture(scope="module")
def models():
    return load_models(CONFIGS)


@pytest.fixture(scope="module")
def boards():
    return {name: load_board(name, CONFIGS / "boards") for name in BOARDS}


def left_by_shell(board):
    """What timing closes on: of each region, and of all together."""
    shares = board.closure
    whole = dict.fromkeys(("lut", "ff", "bram36", "uram", "dsp"), 0.0)
    regions = []
    for region in board.regions:
        regions.append({name: getattr(region.usable, name) * getattr(shares, name) for name in whole})
        whole = {name: whole[name] + regions[-1][name] for name in whole}
    return whole, regions


def check(board, kind, precision, sizes, models):
    """Return whether the proposal fits; a refusal is one line that names what lacks, with exit code 2."""
    try:
        found = estimate_kernel(kernel_request(kind, {"dtype": precision, **sizes}, board), board, models)
    except UnusableValueError as refused:
        assert refused.exit_code == 2
        assert "\n" not in str(refused)
        assert f"{board.name} holds no {kind} kernel of {precision}" in str(refused) or NO_ARRAY in str(refused)
        return False
    assert found["fits"]
    assert found["short_of"] == {}
    whole, regions = left_by_shell(board)
    is_whole = "over all regions" in " ".join(found["assumptions"])
    assert any(
        all(found["resources"][name] <= room[name] for name in room) for room in ([whole] if is_whole else regions)
    )
    assert found["resources"]["memory_channels"] <= board.memory_port_count
    assert found["attained_bytes_per_s"] <= board.memory.channel_count * board.memory.channel_bytes_per_s
    if kind in ("gemm", "conv"):
        dsp, rate = found["resources"]["dsp"], board.macs_per_dsp[precision]
        assert found["attained_flop_per_s"] <= dsp * rate * 2 * board.clock_mhz * 1e6 * (1 + 1e-9)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
def test_a_proposal_fits(board, boards, models):
    """Those that did not: arrays of fp32 on a V80, attention and rows on the smallest boards."""
    for kind, sizes in (KERNELS[2], KERNELS[7], KERNELS[9]):
        assert check(boards[board], kind, "fp32", sizes, models)
    assert check(boards[board], *("softmax", "int8", KERNELS[10][1]), models)


@pytest.mark.exhaustive
def test_all_proposals_fit_or_are_refused(boards, models):
    cases = list(product(BOARDS, FORMATS, KERNELS))
    assert len(cases) == 792
    refused = [
        (board, precision, kind)
        for board, precision, (kind, sizes) in cases
        if not check(boards[board], kind, precision, sizes, models)
    ]
    assert {precision for _, precision, _ in refused} == {"fp64"}
    assert {board for board, _, kind in refused if kind not in ("gemm", "conv")} == {"ultra96"}


@pytest.mark.parametrize(
    ("kind", "precision", "lacking"),
    [("attention", "fp64", "attention-4x4-fp64, needs"), ("gemm", "fp64", NO_ARRAY)],
)
def test_what_no_board_of_this_size_holds_is_refused(kind, precision, lacking, boards, models):
    sizes = {"tokens": 61} if kind == "attention" else {"m": 5, "k": 7, "n": 11}
    with pytest.raises(UnusableValueError, match=lacking):
        estimate_kernel(
            kernel_request(kind, {"dtype": precision, **sizes}, boards["ultra96"]), boards["ultra96"], models
        )
