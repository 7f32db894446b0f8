"""Accounting once as designs of the stage: FA-DOSA's figures of ResNet-18, and what is plainly out of reach."""

from __future__ import annotations

from functools import cache

import pytest
from pytest import approx

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.evaluation import DesignResults, evaluate
from common.design_space.search.settings import ONCE, TILED, Search
from common.messages.errors import UnusableValueError
from models.__main__ import BUILDERS
from tests.support.paths import CONFIGS
from tests.support.tables.source import source_rows

FA_DOSA, GEMMINI = (load_hardware(name, CONFIGS / "hardware") for name in ("fa-dosa", "gemmini"))
PUBLISHED = 3.49e14


@cache
def resnet18():
    return source_rows(BUILDERS["resnet18"](has_weights=False), N=1)


def computed(workload, designs):
    """Search designs one after the other, with nothing kept."""
    return DesignResults([workload.searched(design) for design in designs], 0)


@cache
def found(kib, accounting):
    hardware = FA_DOSA.resized(capacity_kib={"buffer": kib})
    return evaluate({"one": hardware}, *resnet18(), [Search(accounting=accounting)], computed)


def test_the_seeds_figures():
    (design,) = found(28, ONCE).designs
    assert design.point["edp_pj_cycles"] == approx(3.82e14, rel=0.005)
    assert design.point["unfused_edp_pj_cycles"] == approx(5.76e14, rel=0.005)
    assert sum(row["dram_bytes"] for row in design.groups) / 1e6 == approx(72.5, rel=0.005)
    cycles, energy = (sum(row[f"modelled_{name}"] for row in design.groups) for name in ("cycles", "energy_pj"))
    assert cycles * energy == approx(design.point["edp_pj_cycles"])


def test_capacity_changes_nothing_but_the_buffers_energy_per_byte():
    points = [found(kib, ONCE).designs[0].point for kib in (1, 28, 4096)]
    assert len({point["modelled_cycles"] for point in points}) == 1
    per_byte = [2.5 + 0.25 + 0.0001 * kib for kib in (1, 28, 4096)]
    energy = [point["modelled_energy_pj"] for point in points]
    assert energy[2] / energy[0] == approx(per_byte[2] / per_byte[0])


@pytest.mark.slow
def test_the_published_product_is_said_to_be_out_of_reach_where_it_is():
    """Said at the published size alone, and true there: the optimum over all schedules is above it."""
    tiled = found(28, TILED)
    assert tiled.designs[0].point["edp_pj_cycles"] > PUBLISHED
    assert any("3.49e14" in note and "no schedule reaches" in note for note in tiled.notes)
    assert not any("3.49e14" in note for note in found(512, TILED).notes)
    assert any("no bound on what a buffer of that size reaches" in note for note in found(28, ONCE).notes)


@pytest.mark.parametrize(
    ("hardware", "engine", "problem"),
    [(GEMMINI, "exact", "gemmini has the memories"), (FA_DOSA, "random", "random has nothing to search")],
)
def test_what_the_accounting_does_not_have_is_refused(hardware, engine, problem):
    with pytest.raises(UnusableValueError, match=problem):
        evaluate({"one": hardware}, *resnet18(), [Search(engine, accounting=ONCE)], computed)
