"""The law of a processor's power against published readings: what docs/VALIDATION.md says about it."""

from collections import Counter
from statistics import fmean

import pytest

from benchmarks.measuring.processor_power import (
    at_the_plug,
    by_family,
    configured_law,
    coverage,
    full_load_share,
    main,
    memory_pj_per_byte,
    readings,
    verdict,
)
from benchmarks.measuring.processor_table import table_rows


@pytest.fixture(scope="module")
def law():
    return configured_law()


@pytest.fixture(scope="module")
def found():
    return readings()


def test_the_configured_full_load_is_that_of_the_fitted_servers(law, found):
    assert round(full_load_share(found[0]), 2) == law.full_load_share.likely


def test_the_interval_is_a_factor_of_three_around_the_likely_power(law):
    share = law.full_load_share
    assert 2.9 < share.high / share.low <= 3
    assert share.high / share.likely == pytest.approx(share.likely / share.low, rel=0.01)


def test_the_interval_holds_most_readings_of_processors_that_took_no_part(law, found):
    at_work = [reading for reading in found[1] if reading.cores_in_use]
    held = coverage(at_work, law)
    assert not {reading.processor for reading in at_work} & {reading.processor for reading in found[0]}
    assert (sum(inside for inside, _ in held.values()), len(at_work), len(held)) == (82, 96, 17)
    assert fmean(inside / count for inside, count in held.values()) >= 0.8


def test_the_readings_outside_are_those_that_the_documentation_names(law, found):
    held = coverage([reading for reading in found[1] if reading.cores_in_use], law)
    outside = {name: count - inside for name, (inside, count) in held.items() if inside < count}
    assert outside == {
        "Haswell-EP": 5,
        "Ivy Bridge laptop": 3,
        "Coffee Lake": 1,
        "Rome": 3,
        "Siena": 1,
        "Ice Lake laptop": 1,
    }


def test_servers_measured_at_the_plug_draw_what_the_interval_holds(law):
    """Of a 7763's server with 228 W and 52.5 W idle, 158 to 219 W are its package's; likely are 0.93 * 280 W."""
    found = at_the_plug()
    ends = {ends[0].family: ends for ends in found if ends[1].watts == pytest.approx(0.96 * 228)}["Milan"]
    assert [end.watts for end in ends] == pytest.approx([0.9 * (228 - 52.5), 0.96 * 228])
    assert [end.error(law) for end in ends] == pytest.approx([0.607, 0.841], abs=0.001)
    at_full_load = [(ends[0].family, verdict(ends, law)) for ends in found if ends[0].cores_in_use == 1]
    counts = Counter(at_full_load)
    assert counts.pop(("Milan", "undecided")) == 3
    assert counts == {
        ("Milan", "inside"): 20,
        ("Genoa", "inside"): 17,
        ("Sapphire Rapids", "inside"): 20,
        ("Ice Lake-SP", "inside"): 15,
    }


def test_memory_under_stream_costs_what_is_configured_with_one_rank_and_more_with_two(law):
    one, two = memory_pj_per_byte()
    dram = law.dram_pj_per_byte
    assert dram.low < one[0] < one[1] < dram.high
    assert dram.high < two[0] < two[1] < 1.25 * dram.high


def test_a_table_has_each_processor_once_with_its_source():
    lines = [
        {"Name": "Intel Xeon Platinum 8259CL", "TDP": "210"},
        {"Name": "Intel Xeon CPU Platinum 8259CL", "TDP": "7"},
        {"Name": "Intel Atom C2308", "TDP": "27.29.5"},
        {"Name": "AMD EPYC 7763", "TDP": "280.0"},
    ]
    assert [*table_rows(lines, "a package 3", "2026-10")] == [
        ("amd epyc 7763", "280", "", "a package 3", "2026-10"),
        ("intel xeon platinum 8259cl", "210", 48, "a package 3", "2026-10"),
    ]


def test_the_report_has_a_line_for_each_family(capsys, found):
    assert main() == 0
    printed = capsys.readouterr().out
    assert "held out, at work: 82 of 96 inside" in printed
    assert all(f"\n{name} " in printed for name in by_family(found[1]))
