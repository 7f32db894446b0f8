"""Energy coefficients as configured, and the power of a kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.fpga.device.board_files import load_board
from common.fpga.speedup.energy import kernel_dynamic_uj, kernel_energy_uj, kernel_power_w, read_card_energy
from common.fpga.speedup.totals import CardWork
from common.intervals import ThreePoint
from common.messages.errors import ConfigurationError, PipelineError
from tests.support.paths import ROOT

PATH = ROOT / "configs" / "card_energy.yaml"
CONTENT = load_yaml(PATH)
U280 = load_board("u280", ROOT / "configs" / "boards")


@pytest.fixture(scope="module")
def coefficients():
    return read_card_energy(Section(PATH, CONTENT))


def test_narrower_formats_cost_less(coefficients):
    costs = [coefficients.compute_pj_per_flop[name] for name in ("fp64", "fp32", "bf16", "int16", "int8", "int4")]
    for case in ("pessimistic", "likely", "optimistic"):
        found = [getattr(cost, case) for cost in costs]
        assert found == sorted(found, reverse=True)


def test_what_the_sources_say_in_arithmetic(coefficients):
    # whole-card GOp/J are the high ends: 1000 / 10.9 = 91.7 pJ, and so on
    high = {name: coefficients.compute_pj_per_flop[name].pessimistic for name in ("fp32", "bf16", "int16", "int8")}
    assert high == pytest.approx(
        {"fp32": 1e3 / 10.9, "bf16": 1e3 / 15.1, "int16": 1e3 / 33.1, "int8": 1e3 / 48}, rel=2e-3
    )
    # 45 nm arithmetic, per operation, times 7.1
    low = {name: coefficients.compute_pj_per_flop[name].optimistic for name in high}
    pairs = {"fp32": 3.7 + 0.9, "bf16": 1.1 + 0.4, "int16": 4 * 0.2 + 0.1, "int8": 0.2 + 0.1}
    assert low == pytest.approx({name: pair / 2 * 7.1 for name, pair in pairs.items()}, rel=0.04)
    for name, most in high.items():
        likely = coefficients.compute_pj_per_flop[name].likely
        assert likely == pytest.approx((low[name] * most) ** 0.5, rel=0.01)
    assert coefficients.memory("HBM2").likely == 6.0 * 8
    assert coefficients.memory("ddr4").likely == 1300 / 8
    assert coefficients.memory("hyperram") == coefficients.memory("ddr3")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int16", "int8", "int4"])
def test_a_full_array_draws_what_the_board_says_that_busy_kernels_add(coefficients, precision):
    """Two figures of different origin: pJ per operation at the array's peak, and readings of whole cards."""
    board = load_board("u280", PATH.parent / "boards")
    dynamic_w = board.peak_flop_per_s(precision) * coefficients.compute_pj_per_flop[precision].likely * 1e-12
    assert board.dynamic_w.optimistic < dynamic_w < board.dynamic_w.pessimistic
    assert dynamic_w == pytest.approx(board.dynamic_w.likely, rel=0.5)


def test_a_kernel_by_hand(coefficients):
    # 1 GMAC in int8 from 10 MB of HBM in 2 ms
    work = CardWork({"int8": 2_000_000_000}, 10_000_000, on_chip_bytes=0)
    dynamic = kernel_dynamic_uj(work, U280, coefficients)
    assert dynamic.likely == pytest.approx(2e9 * 4.8e-6 + 1e7 * 48e-6)  # 9,600 + 480 uJ
    time_us = ThreePoint(5_003, 2_003, 1_009)
    assert kernel_energy_uj(work, time_us, U280, coefficients).likely == pytest.approx(41.4 * 2_003 + 10_080)
    power = kernel_power_w(work, time_us, U280, coefficients)
    assert power.likely == pytest.approx(41.4 + 10_080 / 2_003)
    # most: 20.8 pJ and 80 pJ in 1,009 us; least: 1.1 pJ and 31 pJ in 5,003 us
    assert power.pessimistic == pytest.approx(58.3 + (2e9 * 20.8e-6 + 1e7 * 80e-6) / 1_009)
    assert power.optimistic == pytest.approx(39.2 + (2e9 * 1.1e-6 + 1e7 * 31e-6) / 5_003)


@pytest.mark.slow
@given(
    st.sampled_from(("fp32", "int8", "int4")),
    st.integers(0, 10**13),
    st.integers(0, 10**10),
    st.floats(0.1, 1e6),
    st.floats(1, 9),
    st.floats(1, 9),
)
def test_power_lies_between_static_and_the_cards_limit(precision, flops, size, fastest, slower, slowest):
    coefficients = read_card_energy(Section(PATH, CONTENT))
    time_us = ThreePoint(fastest * slower * slowest, fastest * slower, fastest)
    power = kernel_power_w(CardWork({precision: flops}, size), time_us, U280, coefficients)
    assert U280.static_w.optimistic <= power.optimistic <= power.likely <= power.pessimistic <= U280.limit_w


def test_a_board_whose_memory_or_link_nobody_knows_is_refused(coefficients):
    with pytest.raises(PipelineError, match="no energy per byte is known for 'sram'; known: hbm, ddr, sdram"):
        coefficients.memory("sram")
    with pytest.raises(
        PipelineError, match="no energy per byte is known for 'usb'; known: pcie, shared_memory, serial, ethernet"
    ):
        coefficients.link("usb")
    assert coefficients.link("shared_memory") == coefficients.memory("ddr")


def changed(**sections):
    return {**CONTENT, **sections}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "is not a mapping"),
        ({}, "compute_pj_per_flop is missing"),
        (changed(extra={}), "unknown key 'extra'"),
        (changed(link_pj_per_byte={"pcie": CONTENT["link_pj_per_byte"]["pcie"]}), "shared_memory is missing"),
        (changed(memory_pj_per_byte=7), "memory_pj_per_byte is not a mapping"),
        (
            changed(link_pj_per_byte={**CONTENT["link_pj_per_byte"], "usb": CONTENT["link_pj_per_byte"]["pcie"]}),
            "unknown key 'usb'|unknown key link_pj_per_byte.'usb'|usb",
        ),
    ],
)
def test_a_hostile_file_is_one_line(content, message):
    with pytest.raises(ConfigurationError, match=message) as error:
        read_card_energy(Section(PATH, content))
    assert "\n" not in str(error.value)
