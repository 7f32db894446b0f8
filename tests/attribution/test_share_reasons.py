"""Why a share of the roof is above 1: each reason on numbers that only it explains, and its place among the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from common.artifacts.columns import COLUMNS
from common.attribution.known_work import KnownWork
from common.attribution.share_reasons import REASONS, WINOGRAD_GAIN, share_reason, used_taps_share
from common.roofline import Ceilings, Roofs, place

PEAK, BANDWIDTH, CACHE = 1000.0, 100.0, 5000  # FLOP/s, bytes/s, bytes; the ridge is at 10 FLOP/byte
ROOFS = Roofs(BANDWIDTH, {"fp32": PEAK}, last_level_cache_bytes=CACHE)
CONV = {
    "op_type": "Conv",
    "kernel_shape": [3, 3],
    "strides": [1, 1],
    "groups": 1,
    "attributes": {"pads": [1, 1, 1, 1], "dilations": [1, 1]},
    "input_shapes": [[1, 7, 28, 28]],
    "output_shapes": [[1, 11, 28, 28]],
}
WIDE = CONV | {"kernel_shape": [5, 5], "attributes": {"pads": [0] * 4, "dilations": [1, 1]}}


@dataclass
class Ran:
    """The work of the executed node's own operator."""

    flops: int | None = None
    macs: int | None = None
    weight_bytes: int | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None


def reason(flops, moved, seconds, *, sources=(), ran=None, roofs=ROOFS, dominated=False):
    ceilings = Ceilings(PEAK, roofs.memory_bytes_per_s)
    placed = place(ceilings, flops, moved, 1e6 * seconds)
    work = KnownWork(0, moved, 0, flops // 2, flops, "counted")
    timed = {"is_correction_dominated": dominated}
    return share_reason(placed, ceilings, roofs, timed, sources, work, Ran(ran))


def test_a_share_of_at_most_one_needs_no_reason():
    assert reason(2000, 20, 2.0) is None
    assert reason(2000, 20, 0.0) is None  # no rate, no share


def test_unstable_ceilings_come_first():
    assert reason(2000, 20, 1.0, roofs=replace(ROOFS, is_stable=False), dominated=True) == "unstable"
    assert reason(2000, 20, 4.0, roofs=replace(ROOFS, is_stable=False)) == "unstable"
    assert reason(2000, 20, 0.0, roofs=replace(ROOFS, is_stable=False)) is None


def test_a_corrected_time_that_is_mostly_correction():
    assert reason(2000, 20, 1.0, dominated=True) == "correction"


def test_work_that_the_runtime_folded():
    """A share of 1.25 on 2,000 FLOPs, of which 1,600 ran; 1,601 would not explain it."""
    assert reason(2000, 20, 1.6, ran=1600) == "not_executed"
    assert reason(2000, 20, 1.6, ran=1601) == "ceiling"


def test_only_a_node_below_the_peak_and_within_the_cache_read_it():
    """2 bytes per FLOP: at 400 bytes/s the share is 4; above 1,000 FLOP/s no cache helps."""
    assert reason(2000, 4000, 10.0) == "cache"
    assert reason(2000, CACHE + 1, 10.0) == "ceiling"
    assert reason(2000, 4000, 1.9) == "ceiling"
    assert reason(0, 4000, 10.0) == "cache"
    assert reason(2000, 10**9, 10.0, roofs=Roofs(BANDWIDTH, {"given": PEAK})) == "cache"  # its size is unknown


def test_taps_on_padding_explain_five_percent_of_a_map_of_28():
    """Each axis has 28 · 3 taps, of which 2 are on padding: (82 / 84)²."""
    assert used_taps_share(CONV) == pytest.approx((82 / 84) ** 2)
    assert reason(2000, 20, 2.0 / 1.04, sources=[CONV]) == "padding"
    assert reason(2000, 20, 2.0 / 1.05, sources=[CONV]) == "winograd"


def test_strides_and_dilations_count_in_the_taps():
    """Source of 5, kernel 3, stride 2, dilation 2, one before: taps at −1 1 3, 1 3 5 on each axis; 4 of 6 count."""
    strided = CONV | {"strides": [2, 2], "input_shapes": [[1, 7, 5, 5]], "output_shapes": [[1, 11, 2, 2]]}
    strided["attributes"] = {"pads": [1, 1, 1, 1], "dilations": [2, 2]}
    assert used_taps_share(strided) == pytest.approx((4 / 6) ** 2)
    unknown = [CONV | {"input_shapes": [None]}, CONV | {"attributes": {}}, CONV | {"input_shapes": [[1, 7, "H", 28]]}]
    assert {used_taps_share(row) for row in unknown} == {1.0}


def test_winograd_saves_at_most_a_factor_of_four_of_3x3_convolutions():
    seconds = 2.0 / (WINOGRAD_GAIN - 0.01)
    halved = CONV | {"strides": [2, 2], "output_shapes": [[1, 11, 14, 14]]}
    assert reason(2000, 20, seconds, sources=[CONV]) == "winograd"
    assert reason(2000, 20, 2.0 / (WINOGRAD_GAIN + 0.01), sources=[CONV]) == "ceiling"
    assert reason(2000, 20, seconds, sources=[WIDE]) == "ceiling"
    assert reason(2000, 20, seconds, sources=[CONV | {"groups": 7}]) == "ceiling"
    assert reason(2000, 20, seconds, sources=[halved]) == "ceiling"
    assert reason(2000, 20, seconds) == "ceiling"


def test_the_table_allows_these_reasons():
    assert COLUMNS["roof_share_reason"].allowed == REASONS
