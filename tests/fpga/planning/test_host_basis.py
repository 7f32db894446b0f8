"""Whose times a plan has: a factor on a profile, and boards that have a processor of their own."""

from pathlib import Path

import pytest

from common.fpga.device.board_files import load_board
from common.fpga.planning.host_basis import HostBasis, HostScale, host_basis, read_host_scale
from common.intervals import ThreePoint
from common.messages.errors import UnusableValueError

BOARDS = Path(__file__).resolve().parents[3] / "configs" / "boards"
XEON = "Intel(R) Xeon(R) Processor"


@pytest.mark.parametrize(
    ("text", "cases"), [("8", (8, 8, 8)), ("4..9", (4, 6, 9)), ("6..8..10", (6, 8, 10)), ("0.5", (0.5, 0.5, 0.5))]
)
def test_a_factor_is_a_number_or_an_interval(text, cases):
    assert read_host_scale(text).cases == pytest.approx(cases)


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "10..6", "1..2..3..4", "nan", "inf", "6..8..7", "1e200", "1e-200"]
)
def test_another_factor_is_refused(text):
    with pytest.raises(UnusableValueError, match="is no factor"):
        read_host_scale(text)


def test_a_profile_of_another_machine_says_nothing_about_a_board_with_its_own_processor():
    zcu104, u280 = load_board("zcu104", BOARDS), load_board("u280", BOARDS)
    profiled = host_basis(XEON, None, may_be_of_board=False)
    assert "its own Arm Cortex-A53, and the times are those of Intel" in profiled.mismatch(zcu104)
    assert profiled.mismatch(u280) == ""
    assert host_basis(XEON, None, may_be_of_board=True).mismatch(zcu104) != ""  # that is no processor of a board
    assert host_basis("Arm Cortex-A53", None, may_be_of_board=True).mismatch(zcu104) == ""


@pytest.mark.parametrize("server", ["Arm Neoverse-N1", "Arm Cortex-A72", "aarch64", "ARMv8 Processor rev 4", ""])
def test_another_arm_is_not_the_processor_of_a_board(server):
    """Graviton 2 and Ampere Altra have Neoverse-N1, Graviton 1 and the VCK190 Cortex-A72; a zcu104 has Cortex-A53."""
    zcu104 = load_board("zcu104", BOARDS)
    assert "its own Arm Cortex-A53" in host_basis(server, None, may_be_of_board=True).mismatch(zcu104)


def test_a_scaled_profile_names_factor_and_source():
    scale = HostScale(ThreePoint(4.0, 6.0, 9.0), "a published ratio")
    basis = host_basis(XEON, scale, may_be_of_board=False)
    zcu104 = load_board("zcu104", BOARDS)
    assert basis.mismatch(zcu104) == ""
    assert basis.of_plan(zcu104) == f"Arm Cortex-A53: the times of {XEON}, times 6 (4 to 9): a published ratio"
    assert HostBasis().of_plan(zcu104) == "another machine"
