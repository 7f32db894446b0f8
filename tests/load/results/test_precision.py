"""The precision that a load aims at: how it is read, and when a load has it."""

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.latency.statistics import figures
from common.load.requests.batching import BatchPolicy
from common.load.requests.schedules import poisson
from common.load.requests.sources import OpenLoop
from common.load.results.load_figures import LoadTest, is_precise, steady, summary
from common.load.results.thresholds import Precision
from common.messages.errors import UnusableValueError

MS = 1_000_000


def test_a_precision_is_read_and_written():
    assert Precision.parse("p99 5%") == Precision("p99", 0.05)
    assert str(Precision.parse(" p99.9  2.5 %")) == "p99.9 2.5%"
    assert str(Precision.parse("mean 1%")) == "mean 1%"


@pytest.mark.parametrize("text", ["", "p99", "p98 5%", "5% p99", "p99 5", "jitter 5%"])
def test_what_is_no_precision_is_refused_with_the_figures(text):
    with pytest.raises(UnusableValueError, match=r"<until>: .* is not a figure and a percentage; .*p99\.9, mean"):
        Precision.parse(text)


@pytest.mark.parametrize("percent", ["0%", "100%", "-5%", "nan%", "x%", "inf%"])
def test_a_percentage_is_between_0_and_100(percent):
    with pytest.raises(UnusableValueError, match="it takes a percentage between 0 and 100"):
        Precision.parse(f"p99 {percent}")


@pytest.mark.parametrize("figure", ["p50", "p99", "mean"])
def test_the_farther_limit_decides(figure):
    samples = np.random.default_rng(1).lognormal(5, 0.4, 2000)
    found = figures(samples)
    value, low, high = (found[f"{figure}{end}_us"] for end in ("", "_low", "_high"))
    assert Precision(figure, 0.1).reached_share(samples, 1.0) == pytest.approx(max(high / value - 1, 1 - low / value))


def test_a_figure_without_limits_has_no_precision():
    samples = np.random.default_rng(1).lognormal(5, 0.4, 200)
    assert Precision("p99", 0.99).reached_share(samples, 1.0) is None


def loaded(rate_hz, precision, service_ns=MS):
    record = simulate(OpenLoop(poisson(rate_hz, 8, seed=2)), lambda batch, now_ns: service_ns, BatchPolicy())
    return LoadTest(record, BatchPolicy(), 1, True, precision=precision)


def test_a_valid_load_is_precise_once_its_limits_are_near_enough():
    test = loaded(500, Precision("p90", 0.5))
    found = summary(test, steady(test.record))
    assert found["precision_goal"] == "p90 50%" and 0 < found["precision_reached_share"] < 0.5
    assert is_precise(test)
    assert not is_precise(loaded(500, Precision("p90", 0.9 * found["precision_reached_share"])))


def test_an_overloaded_load_and_one_without_a_goal_are_never_precise():
    assert not is_precise(loaded(2000, Precision("p50", 0.99)))
    test = loaded(500, None)
    found = summary(test, steady(test.record))
    assert not is_precise(test)
    assert (found["precision_goal"], found["precision_reached_share"]) == ("", None)
