"""Mappings as text and as arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.mappings import Mappings, mapping_text, parse_mappings
from common.messages.errors import UnusableValueError
from common.workload.loop_nests import LOOPS
from tests.support.paths import ROOT

GEMMINI = load_hardware("gemmini", ROOT / "configs" / "hardware")
TEXT = "L3[WIO] P28 Q56 K8 S7 - L2[WI] N1 K4X - L1[O] K2 R7 Q2 C3X - L0[W] P4"


def arrays(text):
    read = parse_mappings([text], GEMMINI)
    return read.temporal[0], read.spatial[0], read.order[0]


def factors(array, level):
    return {LOOPS[loop]: int(factor) for loop, factor in enumerate(array[level]) if factor > 1}


def test_a_mapping_is_read_level_by_level():
    temporal, spatial, order = arrays(TEXT)
    assert [factors(temporal, level) for level in range(4)] == [
        {"P": 28, "Q": 56, "K": 8, "S": 7},
        {},
        {"K": 2, "R": 7, "Q": 2},
        {"P": 4},
    ]
    assert [factors(spatial, level) for level in range(4)] == [{}, {"K": 4}, {"C": 3}, {}]
    assert "".join(LOOPS[loop] for loop in order[0][:4]) == "SKQP"  # the innermost first
    assert "".join(LOOPS[loop] for loop in order[2][:3]) == "QRK"
    assert all(sorted(loops) == list(range(len(LOOPS))) for loops in order)


def test_a_mapping_is_written_as_it_was_read():
    assert mapping_text(parse_mappings([TEXT], GEMMINI), 0, GEMMINI) == TEXT


sizes = st.lists(st.integers(1, 40), min_size=len(LOOPS), max_size=len(LOOPS))
orders = st.permutations(range(len(LOOPS)))


@pytest.mark.slow
@given(st.lists(st.tuples(sizes, sizes, orders), min_size=4, max_size=4))
def test_what_is_written_is_read_as_the_same_loops(levels):
    mappings = Mappings(*(np.array([[level[part] for level in levels]]) for part in range(3)))
    temporal, spatial, order = arrays(mapping_text(mappings, 0, GEMMINI))
    assert (temporal == mappings.temporal[0]).all()
    assert (spatial == mappings.spatial[0]).all()
    for level in range(4):
        loops = [loop for loop in mappings.order[0][level] if temporal[level][loop] > 1]
        assert list(order[level][: len(loops)]) == loops


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("L1[WIO] K8 - L0[W] P4", "has 2 levels; the accelerator has 4"),
        (TEXT.replace("L2[WI]", "L7[WI]"), "'L7.WI.' is not the name of a level"),
        (TEXT.replace("L2[WI]", "scratchpad"), "'scratchpad' is not the name of a level"),
        (TEXT.replace("K8", "Z8"), "'Z8' is not a loop"),
        (TEXT.replace("K8", "K0"), "'K0' is not a loop"),
        (TEXT.replace("K8", "K-8"), "'K-8' is not a loop"),
        (TEXT.replace("K8", "K9999999999"), "'K9999999999' is not a loop"),
        (TEXT.replace("P28", "K28"), "has a loop twice"),
        (
            TEXT.replace("L2[WI]", "L2[WIO]"),
            "holds input, output, weight is where gemmini has scratchpad; that holds input, weight",
        ),
        ("", "has 1 levels"),
        (" -  -  - ", "'' is not the name of a level"),
    ],
)
def test_what_is_no_mapping_is_refused(text, message):
    with pytest.raises(UnusableValueError, match=message):
        parse_mappings([text], GEMMINI)
