"""The distribution of a gain against closed forms of log-normal times."""

from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from common.fpga.speedup.draws import END_Z, Draws
from common.fpga.speedup.odds import odds_of
from common.intervals import ThreePoint

NORMAL = NormalDist()
ALONE = np.full(1, 100.0)


def around(likely, spread):
    """A time whose logarithm has this standard deviation."""
    return ThreePoint(likely * exp(END_Z * spread), likely, likely * exp(-END_Z * spread))


def odds(likely=80.0, large=0.4, small=0.2):
    draws = Draws(["large", "small", "idle"])
    new = draws.of("large", around(likely, large)) * draws.of("small", around(1.0, small))
    return odds_of(ALONE, new, draws, draws.ranks)


def test_interval_and_probability_are_those_of_the_log_normal():
    spread, middle = sqrt(0.4**2 + 0.2**2), log(100 / 80)
    found = odds()
    expected = [exp(middle + spread * NORMAL.inv_cdf(share)) for share in (0.05, 0.25, 0.5, 0.75, 0.95)]
    assert found.quantiles == pytest.approx(expected, rel=0.02)
    assert found.pays_probability == pytest.approx(NORMAL.cdf(middle / spread), abs=0.01)


def test_each_term_has_its_share_of_the_variance():
    shares = {term.term: term.variance_share for term in odds().terms}
    assert shares == pytest.approx({"large": 0.8, "small": 0.2, "idle": 0.0}, abs=0.02)
    assert [term.term for term in odds().terms] == ["large", "small", "idle"]


def test_the_probability_if_a_term_is_as_likely():
    known = {term.term: term.pays_probability for term in odds().terms}
    middle = log(100 / 80)
    assert known["large"] == pytest.approx(NORMAL.cdf(middle / 0.2), abs=0.03)
    assert known["small"] == pytest.approx(NORMAL.cdf(middle / 0.4), abs=0.03)
    assert known["idle"] == pytest.approx(odds().pays_probability, abs=0.03)


def test_the_value_of_information_by_hand():
    """Knowing the only term, one offloads where it saves: E[max(100 - t, 0)] - max(100 - E[t], 0), as Black and
    Scholes price an option to sell t for 100."""
    spread, mean_us = 0.5, 105.0
    likely = mean_us / exp(spread**2 / 2)
    d = (log(100 / mean_us) + spread**2 / 2) / spread
    put = 100 * NORMAL.cdf(d) - mean_us * NORMAL.cdf(d - spread)
    draws = Draws(["time", "idle"])
    found = odds_of(ALONE, draws.of("time", around(likely, spread)), draws, draws.ranks)
    values = {term.term: term.value for term in found.terms}
    assert values["time"] == pytest.approx(put, rel=0.02)
    assert values["idle"] < 0.1 * put


@pytest.mark.parametrize("idle", [*"abcdefgh"])
def test_at_a_gain_of_1_chance_has_no_value(idle):
    """The mean saving is 0 there, and what knowing the time is worth is largest."""
    spread, mean_us = 0.5, 100.0
    put = 100 * NORMAL.cdf(spread / 2) - mean_us * NORMAL.cdf(-spread / 2)
    draws = Draws(["time", *"abcdefgh"])
    time = around(mean_us / exp(spread**2 / 2), spread)
    values = {term.term: term.value for term in odds_of(ALONE, draws.of("time", time), draws, draws.ranks).terms}
    assert values["time"] == pytest.approx(put, rel=0.02)
    assert values[idle] < 0.02 * put


def test_a_gain_that_is_certain_has_no_terms_that_matter():
    draws = Draws(["idle"])
    found = odds_of(ALONE, np.full(1, 50.0), draws, ["idle"])
    assert (found.quantiles, found.pays_probability) == ((2.0,) * 5, 1.0)
    assert [(term.variance_share, term.value) for term in found.terms] == [(0.0, 0.0)]


def test_a_gain_of_exactly_one_does_not_pay_whatever_is_known():
    draws = Draws(["idle"])
    found = odds_of(ALONE, ALONE, draws, draws.ranks)
    assert (found.pays_probability, found.terms[0].pays_probability, found.terms[0].value) == (0, 0, 0)
