"""The clock of arrays with pumped DSPs on a full card, beside the readings that it follows from."""

from statistics import median

import pytest

from benchmarks.kernels.published import cards
from common.fpga.coefficients import load_models
from tests.support.paths import ROOT

U50LV_MHZ = (247.5, 275.0)  # of cards without rates of frames


def test_it_is_the_lowest_the_median_and_the_highest_of_all_readings():
    shares = [mhz / 300 for mhz in (*(card.clock_mhz for card in cards()), *U50LV_MHZ)]
    assert len(shares) == 13
    found = load_models(ROOT / "configs").replicas.pumped["int8"].clock_share
    assert found.cases == pytest.approx((min(shares), median(shares), max(shares)), abs=1e-3)
