"""The energy model, its division over nodes and its cost, with prime numbers and the arithmetic written out."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from common.files.configuration import Constant, Section
from common.messages.errors import ConfigurationError, PipelineError, UnusableValueError
from common.power.bounded_value import BoundedValue, given
from common.power.division import run_energy, static_energy
from common.power.efficiency import Host, WholeRun, efficiency, million_inferences, ratio
from common.power.energy_model import CostFactors, EnergyModel, read_energy_configuration
from common.power.estimate import KnownPower, estimate
from common.power.host_power import HostPower
from common.power.measured import PowerSample, average_power, counted_domains, idle_power
from common.power.node_energy import NodeWork, compute_roof_us, dynamic_energy, fill_unknown, total_bytes, total_flops
from tests.support.paths import ROOT

ENERGY_YAML = ROOT / "configs" / "energy.yaml"


def bounded(likely, low, high, source="test"):
    return BoundedValue(likely, low, high, source)


def constant(likely, low, high):
    return Constant(low, likely, high, "test", "assumed")


MODEL = EnergyModel(
    name="test",
    compute_pj_per_flop={"float32": constant(7.0, 2.0, 11.0), "int8": constant(2.0, 1.0, 3.0)},
    movement_pj_per_byte={"last_level_cache": constant(13.0, 5.0, 17.0), "dram": constant(88.0, 48.0, 194.0)},
)
CONV = NodeWork(19.0, "float32", 23e6, weight_bytes=29e3, activation_bytes=31e3)
GEMM = NodeWork(37.0, "int8", 41e6, weight_bytes=43e3, activation_bytes=47e3)
GAP = NodeWork(4.0, is_gap=True)
RUN_US = 19.0 + 37.0 + 4.0
CACHE_BYTES = 70e3  # CONV's 60 kB fit, GEMM's 90 kB do not, nor does the model's 150 kB
CONV_COMPUTE_UJ = 23 * 7.0  # 23 MFLOP x 7 pJ = 161 µJ
GEMM_COMPUTE_UJ = 41 * 2.0
# weights from DRAM through the cache, at 88 + 13 pJ, activations from the cache: 29 kB x 101 pJ = 2.929 µJ
CONV_MOVEMENT_UJ = 0.029 * 101 + 0.031 * 13
GEMM_MOVEMENT_UJ = (0.043 + 0.047) * 101
DYNAMIC_UJ = CONV_COMPUTE_UJ + GEMM_COMPUTE_UJ + CONV_MOVEMENT_UJ + GEMM_MOVEMENT_UJ


def energy(works=(CONV, GEMM, GAP), run_us=RUN_US, *, static_w=2.0, average=None, cache_bytes=CACHE_BYTES):
    static = static_w if isinstance(static_w, BoundedValue) else given(static_w)
    return run_energy(list(works), run_us, MODEL, cache_bytes, static_power=static, average_power=average)


# --- what the work of a node costs ----------------------------------------------------------------------------------


def test_compute_by_dtype_and_movement_by_level():
    dynamic = dynamic_energy([CONV, GEMM, GAP], MODEL, CACHE_BYTES)
    assert dynamic.compute_uj == pytest.approx([CONV_COMPUTE_UJ, GEMM_COMPUTE_UJ, 0.0])
    assert dynamic.movement_uj == pytest.approx([CONV_MOVEMENT_UJ, GEMM_MOVEMENT_UJ, 0.0])
    assert dynamic.total_uj == pytest.approx(DYNAMIC_UJ)


def test_a_model_that_fits_the_cache_has_its_weights_there():
    dynamic = dynamic_energy([CONV, GEMM, GAP], MODEL, 150e3)
    assert dynamic.movement_uj == pytest.approx([0.060 * 13, 0.090 * 13, 0.0])


def test_an_unknown_cache_is_none():
    assert dynamic_energy([CONV], MODEL, None).movement_uj == pytest.approx([0.060 * 101])


def test_a_memory_bound_node_above_the_roof_was_in_the_cache():
    resident = NodeWork(37.0, "int8", 41e6, 43e3, 47e3, is_cache_resident=True)
    assert dynamic_energy([resident, CONV], MODEL, 1.0).movement_uj == pytest.approx([0.090 * 13, 0.060 * 101])


def test_the_bounds_have_every_byte_in_the_cache_or_in_dram():
    low = dynamic_energy([CONV], MODEL, CACHE_BYTES, "low", "low")
    high = dynamic_energy([CONV], MODEL, 1e9, "high", "high")
    assert (low.compute_uj[0], low.movement_uj[0]) == pytest.approx((23 * 2.0, 0.060 * 5))
    assert (high.compute_uj[0], high.movement_uj[0]) == pytest.approx((23 * 11.0, 0.060 * 211))


def test_unknown_work_is_nan_and_then_like_that_of_the_others_by_time():
    uncounted = NodeWork(7.0, "float32", None, 3e3, 5e3)
    odd_dtype = NodeWork(3.0, "float4", 1e6, 3e3, None)
    works = [CONV, GEMM, uncounted, odd_dtype, GAP]
    raw = dynamic_energy(works, MODEL, CACHE_BYTES)
    assert np.isnan(raw.compute_uj).tolist() == [False, False, True, True, False]
    assert np.isnan(raw.movement_uj).tolist() == [False, False, False, True, False]
    filled = fill_unknown(raw, works)
    watts = (CONV_COMPUTE_UJ + GEMM_COMPUTE_UJ) / (19.0 + 37.0)  # µJ per µs
    assert filled.compute_uj[2:4] == pytest.approx([7.0 * watts, 3.0 * watts])
    known_uj = raw.movement_uj[:3].sum()
    assert filled.movement_uj[3] == pytest.approx(3.0 * known_uj / (19.0 + 37.0 + 7.0))
    assert filled.compute_uj[0] == raw.compute_uj[0]


def test_no_flops_cost_nothing_whatever_the_dtype():
    assert dynamic_energy([NodeWork(5.0, "string", 0, 0.0, 0.0)], MODEL, None).compute_uj.tolist() == [0.0]


def test_totals_of_a_run_are_unknown_as_soon_as_one_node_is():
    assert total_flops([CONV, GEMM, GAP]) == 23e6 + 41e6
    assert total_bytes([CONV, GEMM, GAP]) == 60e3 + 90e3
    assert total_flops([CONV, NodeWork(1.0, "float32", None, 1.0, 1.0)]) is None


# --- the division ---------------------------------------------------------------------------------------------------


def test_static_energy_is_static_power_times_time():
    assert static_energy([CONV, GEMM, GAP], RUN_US, 2.0) == pytest.approx([38.0, 74.0, 8.0])


def test_a_negative_gap_has_none_and_the_nodes_share_that_of_the_run():
    short_run_us = 19.0 + 37.0 - 3.0
    static_uj = static_energy([CONV, GEMM, NodeWork(-3.0, is_gap=True)], short_run_us, 2.0)
    assert static_uj == pytest.approx([2 * 53 * 19 / 56, 2 * 53 * 37 / 56, 0.0])
    assert static_uj.sum() == pytest.approx(2.0 * short_run_us)


def test_a_run_without_time_is_an_error():
    with pytest.raises(PipelineError, match="no node takes any time"):
        static_energy([NodeWork(0.0)], 0.0, 2.0)


def test_a_given_power_closes_on_its_total():
    result = energy(average=given(11.0))  # 11 W x 60 µs = 660 µJ, of which 2 W x 60 µs = 120 are static
    factor = (660 - 120) / DYNAMIC_UJ
    assert result.total == given(660.0)
    assert result.division.closure_factor == pytest.approx(factor)
    assert result.division.compute_uj == pytest.approx([factor * CONV_COMPUTE_UJ, factor * GEMM_COMPUTE_UJ, 0.0])
    assert result.division.energy_uj == pytest.approx(
        [38 + factor * (CONV_COMPUTE_UJ + CONV_MOVEMENT_UJ), 74 + factor * (GEMM_COMPUTE_UJ + GEMM_MOVEMENT_UJ), 8.0]
    )
    assert result.division.energy_uj.sum() == pytest.approx(660.0)


def test_shares_of_energy_are_not_shares_of_latency():
    """The pitfall of E = P x t: GEMM takes twice CONV's time and does half its work."""
    conv, gemm, _ = energy(average=given(11.0)).division.energy_uj
    assert conv > gemm
    assert CONV.latency_us < GEMM.latency_us


def test_without_power_there_is_no_energy():
    result = energy(static_w=bounded(3.0, 2.0, 5.0, "modelled"))
    assert result.total is None
    assert not result.is_divided


def test_a_modelled_power_is_divided_as_a_known_one():
    result = energy(static_w=bounded(2.0, 2.0, 2.0, "modelled"), average=bounded(11.0, 7.0, 17.0, "modelled"))
    assert result.total == BoundedValue(660.0, 420.0, 1020.0, "modelled")
    assert result.division.closure_factor == pytest.approx((660 - 120) / DYNAMIC_UJ)
    assert (result.low_uj[2], result.high_uj[2]) == pytest.approx((8.0, 8.0))  # the gap has static energy alone


def test_a_modelled_power_without_work_stays_undivided():
    result = energy([NodeWork(5.0, "float32", 0, 0.0, 0.0)], 5.0, average=bounded(11.0, 7.0, 17.0, "modelled"))
    assert result.total == BoundedValue(55.0, 35.0, 85.0, "modelled")
    assert not result.is_divided


def test_intervals_of_nodes_hold_the_figure_and_are_those_of_the_division():
    result = energy(average=given(11.0))
    assert (result.low_uj <= result.division.energy_uj).all()
    assert (result.high_uj >= result.division.energy_uj).all()
    # dear compute, cheap movement: CONV has 23 x 11 + 0.060 x 5 of 23 x 11 + 41 x 3 + 0.150 x 5
    dear = 38 + 540 * (23 * 11 + 0.060 * 5) / (23 * 11 + 41 * 3 + 0.150 * 5)
    cheap = 38 + 540 * (23 * 2 + 0.060 * 211) / (23 * 2 + 41 * 1 + 0.150 * 211)
    assert (result.low_uj[0], result.high_uj[0]) == pytest.approx((min(cheap, dear), max(cheap, dear)))
    assert result.low_uj[2] == result.high_uj[2] == pytest.approx(8.0)


def test_a_measured_interval_and_an_uncertain_static_power_widen_the_nodes():
    measured = bounded(11.0, 10.0, 12.0, "measured")
    wide = energy(average=measured, static_w=bounded(2.0, 1.0, 20.0, "modelled"))
    exact = energy(average=given(11.0))
    assert wide.total == BoundedValue(660.0, 600.0, 720.0, "measured")
    assert (wide.low_uj <= exact.low_uj).all()
    assert (wide.high_uj >= exact.high_uj).all()
    assert wide.high_uj[2] == pytest.approx(12.0 * 4)  # at most all power is static: 20 W cannot be


def test_static_above_the_total_is_an_error():
    with pytest.raises(
        PipelineError, match=r"13 W \(given\) is above .* 11 W \(given\); give <static_power_w>, and <avg"
    ):
        energy(static_w=13.0, average=given(11.0))


def test_all_power_may_be_static():
    result = energy(static_w=11.0, average=given(11.0))
    assert result.division.closure_factor == pytest.approx(0.0, abs=1e-12)
    assert result.division.energy_uj == pytest.approx([11 * 19, 11 * 37, 11 * 4])


def test_a_known_power_needs_work_to_be_divided_by():
    with pytest.raises(PipelineError, match="no node does any counted work"):
        energy([NodeWork(5.0, "float32", 0, 0.0, 0.0)], 5.0, average=given(11.0))


def test_where_no_work_is_known_the_total_stays_and_the_nodes_have_none():
    blind = [NodeWork(5.0, "float32", None, None, None), NodeWork(1.0, is_gap=True)]
    result = energy(blind, 6.0, average=given(11.0))
    assert result.total == given(66.0)
    assert not result.is_divided
    assert np.isnan(result.division.energy_uj).all()
    assert result.unknown == (0,)
    assert energy(blind, 6.0).total is None


# --- average power out of samples -----------------------------------------------------------------------------------


def samples(domain, *readings):
    return [PowerSample(time_s, domain, power_w) for time_s, power_w in readings]


def test_each_sample_stands_for_the_time_since_the_one_before():
    series = samples("package-0", (1.0, 30.0), (2.0, 50.0), (5.0, 70.0), (6.0, 999.0))
    # 0.5 s at 50 W and 3 s at 70 W; the first and the last lie outside.
    mean = average_power(series, ["package-0"], 1.5, 5.0)
    assert mean.likely == pytest.approx((0.5 * 50 + 3 * 70) / 3.5)
    assert mean.source == "measured"


def test_domains_add_up_and_their_errors_in_quadrature():
    package = samples("package-0", (1.0, 30.0), (2.0, 50.0))
    dram = samples("package-0/dram", (1.0, 5.0), (2.0, 7.0))
    mean = average_power([*package, *dram], ["package-0", "package-0/dram"], 0.0, 2.0)
    # deviations ±10 and ±1: standard errors 10/√1 and 1/√1 for two samples
    half_w = 1.96 * (10.0**2 + 1.0**2) ** 0.5
    assert (mean.likely, mean.low, mean.high) == pytest.approx((46.0, 46 - half_w, 46 + half_w))


def test_a_sum_without_one_of_its_domains_is_no_figure():
    package, dram = samples("package-0", (1.0, 30.0), (2.0, 50.0)), samples("package-0/dram", (1.0, 5.0), (2.0, 7.0))
    domains = ["package-0", "package-0/dram"]
    assert average_power([*package, *dram], domains, 0.5, 2.0) is not None
    assert average_power([*package, *dram[:1]], domains, 0.5, 2.0) is None  # gone in mid-run
    assert average_power(dram, domains, 0.5, 2.0) is None
    assert average_power([*package, *dram], [], 0.5, 2.0) is None


def test_one_sample_has_no_interval_and_is_no_figure():
    series = samples("psys", (3.0, 41.0))
    assert average_power(series, ["psys"], 0.0, 5.0) is None
    assert idle_power(series, ["psys"]) is None
    twice = samples("psys", (3.0, 41.0), (4.0, 41.0))
    assert average_power(twice, ["psys"], 0.0, 5.0) == BoundedValue(41.0, 41.0, 41.0, "measured")
    assert average_power(twice, ["psys"], float("nan"), float("nan")) is None  # no run after the warm-up


def test_the_first_sample_of_the_idle_host_counts_as_long_as_the_others():
    """Of a counter it is the mean since the reading that started it; the last one is of the moment it took to stop."""
    series = samples("package-0", (0.1, 20.0), (0.2, 26.0), (0.3, 23.0), (0.301, 900.0))
    assert idle_power(series, ["package-0"]).likely == pytest.approx((20 + 26 + 23 + 0.01 * 900) / 3.01)


def test_no_energy_is_counted_twice_and_no_idle_gpu_at_all():
    host = ["psys", "package-1", "package-0/dram", "package-0", "gpu-0"]
    assert counted_domains(host, with_gpu=False) == ("package-0", "package-0/dram", "package-1")
    assert counted_domains(["psys", "gpu-0"], with_gpu=True) == ("psys", "gpu-0")
    assert counted_domains(host[:-1], with_gpu=True) == ()  # the GPU that runs the model is not measured
    assert counted_domains(["package-0/dram", "psys"], with_gpu=False) == ("psys",)  # memory is not the processor
    assert counted_domains(["package-0/dram"], with_gpu=False) == ()


# --- efficiency and cost --------------------------------------------------------------------------------------------

FACTORS = CostFactors(constant(480.0, 30.0, 700.0), constant(0.07, 0.05, 0.23), constant(0.041, 0.019, 0.053))
WHOLE = WholeRun(
    run_us=50_000.0,
    threads=3,
    flops=7e9,
    traffic_bytes=3e8,
    energy_uj=bounded(0.36e6, 0.18e6, 0.72e6),
    compute_roof_us=35_000.0,
)


def test_a_million_inferences():
    million = million_inferences(WHOLE, FACTORS)
    assert million.gco2e.likely == pytest.approx(0.1 * 480)  # 0.36 J x 1e6 = 0.1 kWh
    assert (million.gco2e.low, million.gco2e.high) == pytest.approx((0.05 * 30, 0.2 * 700))
    assert million.energy_usd.likely == pytest.approx(0.1 * 0.07)
    assert million.host_usd.likely == pytest.approx(3 * 50_000 / 3600 * 0.041)  # 50 ms x 1e6 = 50,000 s on 3 threads


def test_the_compute_roof_of_each_number_format():
    works = [NodeWork(1.0, flops=3e9, roof="fp32"), NodeWork(1.0, flops=5e9, roof="int8"), NodeWork(1.0, flops=0.0)]
    peaks = {"fp32": 2e11, "int8": 1e12}
    assert compute_roof_us([*works, NodeWork(1.0, is_gap=True)], peaks) == pytest.approx(15_000 + 5_000)
    assert compute_roof_us(works, {"fp32": 2e11}) is None
    assert compute_roof_us([*works, NodeWork(1.0)], peaks) is None


def test_efficiency():
    figures = efficiency(WHOLE, Host(memory_bytes_per_s=3e10), million_inferences(WHOLE, FACTORS))
    assert figures["whole_model_flop_per_s"] == pytest.approx(7e9 / 0.05)
    assert figures["peak_share"] == pytest.approx(0.7)
    assert figures["bandwidth_share"] == pytest.approx(3e8 / 0.05 / 3e10)
    assert figures["joules_per_inference_j"] == pytest.approx(0.36)
    assert figures["inferences_per_joule"] == pytest.approx(1 / 0.36)
    watts = 0.36 / 0.05
    assert figures["efficiency_flop_per_s_per_w"] == pytest.approx(figures["whole_model_flop_per_s"] / watts)


def test_what_is_unknown_stays_so():
    whole = WholeRun(run_us=50_000.0, threads=1, flops=None, traffic_bytes=3e8, energy_uj=None)
    figures = efficiency(whole, Host(), million_inferences(whole, FACTORS))
    assert figures["energy_source"] == "unavailable"
    unknown = (
        figures["whole_model_flop_per_s"],
        figures["peak_share"],
        figures["bandwidth_share"],
        figures["inferences_per_joule"],
    )
    assert unknown == (None,) * 4
    assert figures["million_inferences_gco2e"] is None
    assert figures["million_inferences_host_usd"] > 0
    assert ratio(1.0, 0.0) is None


MODELLED = HostPower(
    bounded(9.0, 6.0, 18.0, "modelled"), bounded(3.0, 2.0, 5.0, "modelled"), "a processor", "the package"
)
FRACTION = bounded(0.25, 0.125, 0.5, "modelled")
TRAFFIC = constant(150.0, 120.0, 210.0)


def estimated(*, average=None, static=None, modelled=MODELLED):
    return estimate(
        {"conv": CONV, "(gap)": NodeWork(1.0, is_gap=True)},
        20.0,
        3,
        power=KnownPower(average, static, modelled, FRACTION),
        dram_pj_per_byte=TRAFFIC,
        model=MODEL,
        factors=FACTORS,
        host=Host(),
    )


def test_the_modelled_power_is_that_of_the_processor_and_of_the_traffic_of_its_memory():
    result = estimated()
    traffic_w = 60e3 * 150e-6 / 20.0  # the cache is unknown, so all bytes come from DRAM
    assert result.summary["energy_source"] == result.summary["static_power_source"] == "modelled"
    assert result.summary["energy_boundary"] == "the package"
    assert result.summary["average_power_w"] == pytest.approx(9.0 + traffic_w)
    assert result.summary["static_power_w"] == 3.0
    low, high = result.summary["energy_low_uj"] / 20.0, result.summary["energy_high_uj"] / 20.0
    assert low == pytest.approx(9.0 + traffic_w - np.hypot(3.0, traffic_w))  # at the low end nothing comes from DRAM
    assert high == pytest.approx(9.0 + traffic_w + np.hypot(9.0, 60e3 * (210e-6 - 150e-6) / 20.0))
    assert any("last-level cache is unknown" in note for note in result.notes)


def test_a_known_power_comes_before_the_model_which_says_how_much_of_it_idles():
    """A meter may see more of the machine than the model counts, so the idle share is taken and not the power."""
    summary = estimated(average=given(900.0)).summary
    assert (summary["average_power_w"], summary["energy_boundary"]) == (900.0, "")
    assert (summary["static_power_w"], summary["static_power_source"]) == (300.0, "modelled")
    assert estimated(average=given(900.0), modelled=None).summary["static_power_w"] == 225.0
    assert estimated(average=given(1.0)).summary["static_power_w"] == pytest.approx(1 / 3)


def test_without_a_processor_there_is_no_energy_and_a_way_out():
    result = estimated(modelled=None)
    assert (result.summary["energy_source"], result.summary["static_power_source"]) == ("unavailable", "unavailable")
    assert result.summary["energy_uj"] is result.summary["static_power_w"] is None
    assert any("the energy is unknown" in note and "<cpu>" in note for note in result.notes)


# --- configs/energy.yaml --------------------------------------------------------------------------------------------


def read(content):
    return read_energy_configuration(Section(Path("energy.yaml"), content))


@pytest.fixture
def content():
    return yaml.safe_load(ENERGY_YAML.read_text(encoding="utf-8"))


def test_the_configured_figures_follow_from_their_sources(content):
    """Each derivation of docs/MODEL.md, in numbers."""
    model = read(content).model("server-cpu")
    float32 = model.compute_pj_per_flop["float32"]
    assert float32.likely == pytest.approx((1.8719 - 0.4454) / (2.45e9 * 32 / 2) * 1e12, rel=0.005)
    assert float32.high == pytest.approx((3.3857 - 0.7128) / (2.2e9 * 32 / 2) * 1e12, rel=0.005)
    assert float32.low == pytest.approx((0.9 + 3.7) / 2 + 70 / 16, rel=0.005)
    cache = model.movement_pj_per_byte["last_level_cache"]
    assert cache.likely == pytest.approx(14 / 8 + 310 / 32, rel=0.005)
    assert (cache.low, cache.high) == pytest.approx((14 / 8, 100 / 8 + 2 * 310 / 32), rel=0.005)


def test_the_cost_factors_are_of_the_right_size(content):
    factors = read(content).factors
    assert factors.emissions_gco2e_per_kwh.likely == 481
    assert factors.energy_price_usd_per_kwh.likely == pytest.approx(0.0806)
    assert factors.host_price_usd_per_thread_hour.likely == pytest.approx(0.34 / 8)


def edited(content, path, value):
    *parents, last = path
    place = content
    for key in parents:
        place = place[key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return content


MODEL_PATH = ("models", "server-cpu")
CACHE = (*MODEL_PATH, "movement_pj_per_byte", "last_level_cache")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("models",), None, "models is not a mapping"),
        (("models",), KeyError, "models is missing"),
        (("modles",), {}, "unknown key 'modles'; known keys: factors, models"),
        ((*MODEL_PATH, "statc"), 1, "unknown key 'models.server-cpu.statc'; known keys: compute_pj_per_flop, descr"),
        ((*MODEL_PATH, "compute_pj_per_flop"), KeyError, "models.server-cpu.compute_pj_per_flop is missing"),
        ((*MODEL_PATH, "movement_pj_per_byte", "hbm"), {}, "unknown key 'models.server-cpu.movement_pj_per_byte.hbm'"),
        ((*MODEL_PATH, "compute_pj_per_flop", "float32"), 3, "compute_pj_per_flop.float32 is not a mapping"),
        ((*CACHE, "source"), " ", "last_level_cache.source is not a text, or is empty"),
        ((*CACHE, "trust"), KeyError, "last_level_cache.trust is missing"),
        ((*CACHE, "trust"), "hearsay", "last_level_cache.trust is 'hearsay'; it takes datasheet or vendor"),
        ((*CACHE, "likely"), "1", "last_level_cache.likely is '1', which is not a finite number"),
        ((*CACHE, "low"), True, "last_level_cache.low is True, which is not a finite number"),
        ((*CACHE, "low"), 20.0, "last_level_cache needs 0 < low <= likely <= high"),
        ((*CACHE, "low"), 0, "last_level_cache needs 0 < low <= likely <= high"),
        ((*CACHE, "high"), float("inf"), "last_level_cache.high is inf, which is not a finite number"),
        ((*CACHE, "mean"), 0.7, "unknown key 'models.server-cpu.movement_pj_per_byte.last_level_cache.mean'"),
        (("factors", "water"), 1, "unknown key 'factors.water'"),
    ],
)
def test_a_mistake_in_the_configuration_is_named_where_it_stands(content, path, value, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        read(edited(content, path, value))
    assert str(caught.value).startswith("energy.yaml: ")
    assert caught.value.exit_code == 2


def test_the_old_name_of_the_likely_value_is_refused_with_one_clear_line(content):
    """Files of the format before this one say ``value`` beside ``low`` and ``high``."""
    old = edited(content, (*CACHE, "value"), 0.74)
    with pytest.raises(ConfigurationError) as caught:
        read(edited(old, (*CACHE, "likely"), KeyError))
    assert str(caught.value) == (
        "energy.yaml: models.server-cpu.movement_pj_per_byte.last_level_cache has a value beside an interval; "
        "give low, likely and high, or value alone"
    )


def test_every_model_of_a_file_is_checked(content):
    broken = edited(content, ("models", "phone"), {"description": "a phone"})
    with pytest.raises(ConfigurationError, match=r"models\.phone\.movement_pj_per_byte is missing"):
        read(broken)


def test_a_model_that_is_not_there_names_those_that_are(content):
    with pytest.raises(UnusableValueError, match="<energy_model>: no energy model is called 'phone'; known: server"):
        read(content).model("phone")


def test_a_price_may_be_zero_but_not_negative(content):
    path = ("factors", "host_price_usd_per_thread_hour", "low")
    assert read(edited(content, path, 0)).factors.host_price_usd_per_thread_hour.low == 0.0
    with pytest.raises(ConfigurationError, match=r"factors\.host_price_usd_per_thread_hour is negative"):
        read(edited(content, path, -1))
