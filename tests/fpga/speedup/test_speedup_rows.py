"""The speedup of a plan: terms computed by hand, and identities that hold in every case."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.fpga.device.board_files import load_board
from common.fpga.speedup.amdahl import latency_rows, throughput_rows, total_speedup
from common.fpga.speedup.amdahl import row as speedup_row
from common.fpga.speedup.energy import CardEnergy, energy_rows
from common.fpga.speedup.odds import Odds, TermInformation
from common.fpga.speedup.totals import CardWork, CaseTotals, HostRun
from common.fpga.speedup.verdict import JudgedHost, uncertainty_rows, verdicts
from common.intervals import ThreePoint
from tests.support.paths import ROOT


def host(latency_us, energy_uj, static_power_w, offloaded_us, offloaded_uj):
    """A host without uncertainty."""
    energy = None if energy_uj is None else ThreePoint.exactly(energy_uj)
    return HostRun(
        ThreePoint.exactly(latency_us), energy, static_power_w, ThreePoint.exactly(offloaded_us), offloaded_uj
    )


HOST = host(latency_us=10_007, energy_uj=100_003, static_power_w=3, offloaded_us=8_009, offloaded_uj=90_001)
# Stays: 1,998 us. Likely: 1,998 + 2,003 + 307 + 53 + 211 = 4,572, of which the schedule hides 101.
LIKELY = CaseTotals(
    kernel_us=2_003,
    transfer_us=307,
    conversion_us=53,
    launch_us=211,
    finish_us=4_471,
    busy_us={"host": 1_998, "engine": 2_214, "h2d": 199, "d2h": 108},
    launch_count=7,
)
BAD = CaseTotals(9_001, 401, 59, 307, 11_003, {"host": 1_998, "engine": 9_308, "h2d": 260, "d2h": 141}, 7, 10_607)
GOOD = CaseTotals(1_009, 251, 47, 151, 3_301, {"host": 1_998, "engine": 1_160, "h2d": 163, "d2h": 88}, 7, 3_200)
TOTALS = [BAD, LIKELY, GOOD]
WORK = CardWork({"int8": 1_000_003}, memory_bytes=700_001, link_bytes=50_021, weight_bytes=3_000_017)
U280 = load_board("u280", ROOT / "configs" / "boards")
LINK = replace(U280.link, bytes_per_s=ThreePoint(8.5e9, 10e9, 12e9))
CARD = replace(U280, static_w=ThreePoint(7, 5, 4), limit_w=75.0, link=LINK)


def estimates(**likely):
    return {name: ThreePoint(2 * value, value, value / 2) for name, value in likely.items()}


COEFFICIENTS = CardEnergy(
    estimates(int8=5, fp32=40), estimates(hbm=50, ddr=150, on_chip=4), estimates(pcie=60, shared_memory=150)
)


def rows_of(host=HOST, totals=TOTALS, work=WORK, card=CARD):
    rows = latency_rows(host, totals, work, card) + energy_rows(host, totals, work, card, COEFFICIENTS)
    rows += throughput_rows(host, totals)
    assert len({(row["objective"], row["term"]) for row in rows}) == len(rows)
    return {(row["objective"], row["term"]): row for row in rows}


def likely(found, objective, term):
    return found[objective, term]["likely"]


def test_latency_by_hand():
    found = rows_of()
    expected = {
        "host_total": 10_007,
        "accelerated_fraction": 8_009 / 10_007,
        "kernel_speedup": 8_009 / 2_003,
        "transfer": 307,
        "conversion": 53,
        "launch": 211,
        "overlap": 101,
        "new_total": 4_471,
        "total_speedup": 10_007 / 4_471,
        # the overheads are 307 + 53 + 211 - 101 = 470, so the kernels may take 8,009 - 470 = 7,539
        "break_even_kernel_speedup": 8_009 / 7_539,
        # 7 launches of 211 / 7; 10,007 - 4,471 = 5,536 are left for them
        "break_even_launch": 211 / 7 + 5_536 / 7,
        "break_even_batch": 1,
        "weight_load": 3_000_017 / 10e9 * 1e6,
        "payback_runs": 1,  # 300 us against 5,536 us saved each time
    }
    assert {term: likely(found, "latency", term) for term in expected} == pytest.approx(expected)


def test_the_pessimistic_case_stands_low():
    found = rows_of()
    assert found["latency", "new_total"]["pessimistic"] == 11_003
    # 1,998 + 9,001 + 401 + 59 + 307 = 11,766
    assert found["latency", "overlap"]["pessimistic"] == pytest.approx(11_766 - 11_003)
    assert found["latency", "break_even_batch"]["pessimistic"] is None  # 10,607 without launches is above 10,007
    assert found["latency", "break_even_launch"]["pessimistic"] is None
    assert found["latency", "payback_runs"]["pessimistic"] is None
    assert found["latency", "total_speedup"]["optimistic"] == pytest.approx(10_007 / 3_301)


def test_energy_by_hand():
    found = rows_of()
    expected = {
        "host_total": 100_003,
        "accelerated_fraction": 90_001 / 100_003,
        "card_compute": 1_000_003 * 5 / 1e6,
        "card_memory": 700_001 * 50 / 1e6,
        "card_on_chip": 2 * 700_001 * 4 / 1e6,
        "transfer": 50_021 * 60 / 1e6 + 5 * 307,
        "conversion": 5 * 53,
        "launch": 5 * 211,
        "host_idle": 3 * (4_471 - 1_998),
        "card_static": 5 * (4_471 - 307 - 53 - 211),
    }
    assert {term: likely(found, "energy", term) for term in expected} == pytest.approx(expected)
    kernels = 5.000015 + 35.00005 + 5.600008
    assert likely(found, "energy", "kernel_speedup") == pytest.approx(90_001 / kernels)
    assert likely(found, "energy", "new_total") == pytest.approx(10_002 + kernels + 3.00126 + 7_419 + 22_355)


def test_latency_can_improve_while_energy_gets_worse():
    hungry = replace(CARD, static_w=ThreePoint(70, 60, 50), limit_w=225.0, memory=replace(CARD.memory, kind="ddr4"))
    found = rows_of(card=hungry)
    assert likely(found, "latency", "total_speedup") > 2
    assert likely(found, "energy", "total_speedup") < 0.5  # 60 W x 4,471 us are 268,260 uJ


def test_throughput_by_hand():
    found = rows_of()
    expected = {
        "host_total": 10_007,
        "busy_host": 1_998,
        "busy_engine": 2_214,
        "busy_h2d": 199,
        "busy_d2h": 108,
        "new_total": 2_214,
        "host_rate": 1e6 / 10_007,
        "new_rate": 1e6 / 2_214,
        "total_speedup": 10_007 / 2_214,
    }
    assert {term: likely(found, "throughput", term) for term in expected} == pytest.approx(expected)
    assert found["throughput", "new_total"]["optimistic"] == 1_998  # the host is what holds the optimistic case


def test_the_busiest_of_several_engines_counts_once():
    both = CaseTotals(30, 0, 0, 0, 37, {"host": 7, "first": 19, "second": 11}, 2)
    found = rows_of(host(41, None, None, 34, None), [both, both, both])
    assert likely(found, "throughput", "busy_engine") == 19


def test_a_plan_that_moves_nothing_has_no_speedup_and_needs_no_card():
    stays = host(10_007, 100_003, 3, 0, 0)
    alone = CaseTotals(0, 0, 0, 0, 10_007, {"host": 10_007}, 0, 10_007)
    found = rows_of(stays, [alone, alone, alone], CardWork({}, 0))
    for objective in ("latency", "energy", "throughput"):
        assert likely(found, objective, "total_speedup") == 1
    assert likely(found, "latency", "kernel_speedup") is None
    assert likely(found, "latency", "break_even_batch") is None
    assert likely(found, "energy", "card_static") == 0
    assert likely(found, "energy", "new_total") == 100_003
    assert likely(found, "throughput", "busy_engine") == 0


def test_every_term_has_its_unit():
    units = {key: row["term_unit"] for key, row in rows_of().items()}
    assert {unit for (_, term), unit in units.items() if term in ("payback_runs", "break_even_batch")} == {"count"}
    assert {unit for (_, term), unit in units.items() if term.endswith(("_rate", "_per_s"))} == {"per_s"}
    assert all(units.values())


def test_a_host_that_is_busy_until_the_end_waits_for_nothing():
    """Its own work of 1,998 us hides that of the card, which ends a nanosecond earlier by rounding."""
    hidden = CaseTotals(1_000, 0, 0, 0, 1_997.999, {"host": 1_998, "engine": 1_000}, 1)
    found = rows_of(totals=[hidden, hidden, hidden])
    assert likely(found, "energy", "host_idle") == 0
    assert likely(found, "energy", "card_static") == pytest.approx(5 * 1_997.999)


@pytest.mark.parametrize(
    "alone",
    [host(10_007, None, 3, 8_009, None), host(10_007, 5, None, 8_009, 3), host(10_007, 5, 3, 8_009, None)],
)
def test_without_the_hosts_energy_every_energy_term_is_unknown(alone):
    found = rows_of(alone)
    energy = [row for row in found.values() if row["objective"] == "energy"]
    assert len(energy) == 14
    assert all((row["pessimistic"], row["likely"], row["optimistic"]) == (None, None, None) for row in energy)
    assert likely(found, "latency", "total_speedup") == pytest.approx(10_007 / 4_471)


# --- identities -----------------------------------------------------------------------------------------------------

times = st.floats(0, 1e6)


@st.composite
def plans(draw):
    host_us = draw(st.floats(1, 1e6))
    moved = draw(st.floats(0.001, 1)) * host_us

    def case():
        kernel = draw(st.floats(0.1, 1e6))
        transfer, conversion, launch = (draw(times) for _ in range(3))
        engine, rest = kernel + launch, host_us - moved
        busy = {"host": rest, "engine": engine, "h2d": transfer / 2, "d2h": transfer / 2}
        total = rest + engine + transfer + conversion
        low = max(busy.values())
        finish = low + draw(st.floats(0, 1)) * (total - low)
        return CaseTotals(kernel, transfer, conversion, launch, finish, busy, draw(st.integers(1, 99)))

    energy = draw(st.floats(1, 1e9))
    alone = host(host_us, energy, draw(st.floats(0, 50)), moved, draw(st.floats(0, 1)) * energy)
    work = CardWork(
        {"fp32": draw(st.integers(0, 10**12))}, draw(st.integers(0, 10**9)), draw(st.integers(0, 10**9)), 11
    )
    return alone, [case(), case(), case()], work


@pytest.mark.slow
@given(plans())
def test_the_terms_of_latency_add_up_to_the_finish_of_the_schedule(plan):
    alone, totals, work = plan
    found = rows_of(alone, totals, work)
    for end, case in zip(("pessimistic", "likely", "optimistic"), totals, strict=True):
        cell = {term: row[end] for (of, term), row in found.items() if of == "latency"}
        added = cell["transfer"] + cell["conversion"] + cell["launch"] - cell["overlap"]
        kernels = alone.offloaded_us.likely / cell["kernel_speedup"]
        parts = alone.latency_us.likely * (1 - cell["accelerated_fraction"]) + kernels + added
        assert parts == pytest.approx(case.finish_us, rel=1e-6, abs=1e-3)
        assert cell["new_total"] == pytest.approx(case.finish_us, rel=1e-9, abs=1e-6)
        law = total_speedup(cell["accelerated_fraction"], cell["kernel_speedup"], added / alone.latency_us.likely)
        assert law == pytest.approx(cell["total_speedup"], rel=1e-4)


@pytest.mark.slow
@given(plans())
def test_the_terms_of_energy_add_up_to_the_new_total(plan):
    alone, totals, work = plan
    found = rows_of(alone, totals, work)
    for end in ("pessimistic", "likely", "optimistic"):
        cell = {term: row[end] for (of, term), row in found.items() if of == "energy"}
        names = ("card_compute", "card_memory", "card_on_chip", "transfer", "conversion", "launch", "host_idle")
        names += ("card_static",)
        assert cell["card_static"] >= 0
        stays = cell["host_total"] * (1 - cell["accelerated_fraction"])
        assert stays + sum(cell[name] for name in names) == pytest.approx(cell["new_total"], rel=1e-9, abs=1e-6)
        assert cell["total_speedup"] == pytest.approx(cell["host_total"] / cell["new_total"])


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(("host", "h2d", "engine", "d2h")), st.integers(1, 20)), min_size=1))
def test_a_pipeline_with_that_interval_exists(jobs):
    """A chain of jobs, one inference after another: every resource does its jobs in fixed slots of the interval."""
    busy = {name: sum(time for resource, time in jobs if resource == name) for name, _ in jobs}
    interval = round(max(busy.values()))
    slot, starts, ready = dict.fromkeys(busy, 0), [], 0
    for resource, time in jobs:
        starts.append(ready + (slot[resource] - ready) % interval)
        slot[resource] += time
        ready = starts[-1] + time
    taken = set()
    for inference in range(4):
        for (resource, time), start in zip(jobs, starts, strict=True):
            cells = {(resource, inference * interval + start + tick) for tick in range(time)}
            assert not cells & taken
            taken |= cells


@pytest.mark.slow
@given(plans())
def test_no_pipeline_is_slower_than_one_inference_or_faster_than_its_busiest_part(plan):
    alone, totals, work = plan
    found = rows_of(alone, totals, work)
    for end, case in zip(("pessimistic", "likely", "optimistic"), totals, strict=True):
        interval = found["throughput", "new_total"][end]
        assert interval <= case.finish_us * (1 + 1e-9)
        assert all(interval >= busy for busy in case.busy_us.values())
        assert found["throughput", "new_rate"][end] * interval == pytest.approx(1e6)


# --- the host's own interval ------------------------------------------------------------------------------------------

UNSURE = HostRun(
    ThreePoint(9_001, 10_007, 12_011), ThreePoint(70_001, 100_003, 160_009), 3, ThreePoint(7_001, 8_009, 10_009), 90_001
)


def with_busy(case, busy_us):
    return replace(case, busy_us=busy_us)


def test_the_hosts_interval_is_on_both_sides():
    rests = (2_000, 1_998, 2_002)  # 9,001 - 7,001 and so on
    assert UNSURE.rest_us.cases == rests
    cases = [replace(case, busy_us=case.busy_us | {"host": rest}) for case, rest in zip(TOTALS, rests, strict=True)]
    found = rows_of(UNSURE, [*cases])
    for objective in ("latency", "throughput"):
        row = found[objective, "host_total"]
        assert (row["pessimistic"], row["likely"], row["optimistic"]) == (9_001, 10_007, 12_011)
    speedup = found["latency", "total_speedup"]
    assert speedup["pessimistic"] == pytest.approx(9_001 / 11_003)
    assert speedup["optimistic"] == pytest.approx(12_011 / 3_301)
    assert found["latency", "accelerated_fraction"]["optimistic"] == pytest.approx(10_009 / 12_011)
    assert found["latency", "kernel_speedup"]["pessimistic"] == pytest.approx(7_001 / 9_001)
    assert found["throughput", "total_speedup"]["pessimistic"] == pytest.approx(9_001 / 9_308)
    assert found["throughput", "host_rate"]["optimistic"] == pytest.approx(1e6 / 12_011)


def test_the_hosts_power_moves_as_a_whole():
    found = rows_of(UNSURE)
    watts = {"pessimistic": 70_001 / 9_001, "likely": 100_003 / 10_007, "optimistic": 160_009 / 12_011}
    finish, rest = {"pessimistic": 11_003, "optimistic": 3_301}, {"pessimistic": 2_000, "optimistic": 2_002}
    moved = {"pessimistic": 7_001, "optimistic": 10_009}
    for case in ("pessimistic", "optimistic"):
        more = watts[case] / watts["likely"]
        idle = found["energy", "host_idle"][case]
        assert idle == pytest.approx(3 * more * (finish[case] - rest[case]))
        fraction = found["energy", "accelerated_fraction"][case]
        whole = {"pessimistic": 70_001, "optimistic": 160_009}[case]
        assert fraction == pytest.approx(min(90_001 * more * moved[case] / 8_009 / whole, 1))


@given(st.floats(1, 1e6), st.floats(0.3, 1), st.floats(1, 3), st.floats(1, 1e9))
def test_a_plan_that_moves_nothing_is_1_in_every_case(likely_us, short, long, energy_uj):
    latency = ThreePoint(likely_us * short, likely_us, likely_us * long)
    energy = ThreePoint(energy_uj * short, energy_uj, energy_uj * long)
    alone = HostRun(latency, energy, 3.0, ThreePoint.exactly(0.0), 0.0)
    cases = (CaseTotals(0, 0, 0, 0, us, {"host": us}, 0, us) for us in latency.cases)
    found = rows_of(alone, [*cases], CardWork({}, 0))
    for objective in ("latency", "energy", "throughput"):
        row = found[objective, "total_speedup"]
        assert (row["pessimistic"], row["likely"], row["optimistic"]) == (1, 1, 1)


@pytest.mark.slow
@given(plans(), st.floats(0.5, 1), st.floats(1, 2))
def test_a_short_host_is_worse_for_every_plan(plan, short, long):
    """The case that is named pessimistic is the one with the lower speedup, whatever stays on the host."""
    alone, totals, _ = plan
    likely_us, moved_us, finish = alone.latency_us.likely, alone.offloaded_us.likely, totals[1].finish_us
    card_us = finish - (likely_us - moved_us)
    speedups = [scale * likely_us / (scale * (likely_us - moved_us) + card_us) for scale in (short, 1.0, long)]
    for lower, higher in pairwise(speedups):
        assert card_us < 0 or lower <= higher * (1 + 1e-9)  # the quotient of two sums rounds


# --- the verdict ------------------------------------------------------------------------------------------------------


def odds(probability):
    return Odds((0.8, 0.9, 1.0, 1.1, 1.3), probability, ())


@pytest.mark.parametrize(
    ("probability", "word"),
    [
        (1.0, "pays"),
        (0.95, "pays"),
        (0.949, "undecided"),
        (0.051, "undecided"),
        (0.05, "does not pay"),
        (None, "unknown"),
    ],
)
def test_the_probability_decides_and_not_the_extreme_cases(probability, word):
    moved = speedup_row("latency", "accelerated_fraction", (0.5, 0.5, 0.5), "share")
    rows = [moved, speedup_row("throughput", "total_speedup", (0.1, 2, 30), "ratio")]
    known = {} if probability is None else {"throughput": odds(probability)}
    (verdict,) = verdicts(rows, known, JudgedHost())
    assert (verdict["objective"], verdict["verdict"], verdict["likely"]) == ("throughput", word, 2)
    assert verdict["pays_probability"] == probability
    quantiles = [verdict[f"speedup_p{share}_factor"] for share in (5, 25, 50, 75, 95)]
    assert quantiles == ([None] * 5 if probability is None else [*known["throughput"].quantiles])
    assert (verdict["pessimistic"], verdict["optimistic"], verdict["is_judged"]) == (0.1, 30, True)


def test_nothing_is_judged_where_the_host_is_in_doubt_and_no_probability_is_stated():
    moved = speedup_row("latency", "accelerated_fraction", (0.5, 0.5, 0.5), "share")
    rows, known = [moved, speedup_row("latency", "total_speedup", (1.5, 2, 3), "ratio")], {"latency": odds(1.0)}
    for host, word, doubts in (
        (JudgedHost(doubts=("a doubt",)), "not judged", ("a doubt",)),
        (JudgedHost(mismatch="another host"), "not judged for this host", ("another host",)),
    ):
        (verdict,) = verdicts(rows, known, host)
        assert (verdict["verdict"], verdict["is_judged"], verdict["doubts"]) == (word, False, doubts)
        assert (verdict["pays_probability"], verdict["speedup_p5_factor"]) == (None, None)
    (alone,) = verdicts([{**moved, "likely": 0.0}, rows[1]], known, JudgedHost())
    assert (alone["verdict"], alone["pays_probability"]) == ("host alone", None)


def test_what_would_decide_is_stated_for_a_judged_plan_alone():
    term = TermInformation("launches", 0.7, 0.99, 11.0)
    rows = [speedup_row("latency", "new_total", (3, 2, 1), "us")]
    known = {"latency": Odds((1.0,) * 5, 0.5, (term,))}
    (judged,) = uncertainty_rows(rows, known, is_judged=True)
    assert (judged["known_pays_probability"], judged["information_value"], judged["term_unit"]) == (0.99, 11.0, "us")
    (other,) = uncertainty_rows(rows, known, is_judged=False)
    assert (other["known_pays_probability"], other["information_value"]) == (None, None)
    assert other["variance_share"] == 0.7
