"""Lengths against the distributions that they are of, from the standard library's."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand, padded_length
from common.load.requests.lengths import Lengths
from common.messages.errors import UnusableValueError

COUNT = 100_000


def test_uniform_lengths_have_both_ends():
    drawn = Lengths.parse("uniform:3,11").draw(COUNT, 0)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [*range(3, 12)]
    assert counts == pytest.approx(COUNT / 9, rel=0.05)
    assert set(Lengths.parse("uniform:17,17").draw(5, 0)) == {17}


@pytest.mark.parametrize(
    ("text", "normal", "scale"),
    [
        ("normal:100,37,150", NormalDist(100, 37), float),
        ("lognormal:64,0.8,512", NormalDist(math.log(64), 0.8), math.log),
    ],
)
def test_cut_off_distributions(text, normal, scale):
    """The share up to a length is that of the distribution between a half and the longest and a half."""
    lengths = Lengths.parse(text)
    drawn = lengths.draw(COUNT, 3)
    low, high = normal.cdf(scale(0.5)), normal.cdf(scale(lengths.most + 0.5))
    assert drawn.min() >= 1 and drawn.max() <= lengths.most
    for length in (20, 50, 64, 100, 140):
        expected = (normal.cdf(scale(length + 0.5)) - low) / (high - low)
        assert np.mean(drawn <= length) == pytest.approx(expected, abs=0.006)


def test_equal_seeds_give_equal_lengths_and_others_do_not():
    lengths = Lengths.parse("normal:100,20,200")
    assert np.array_equal(lengths.draw(50, 1), lengths.draw(50, 1))
    assert not np.array_equal(lengths.draw(50, 1), lengths.draw(50, 2))


@pytest.mark.parametrize(
    "text",
    ["", "uniform", "uniform:5", "uniform:5,6,7", "gamma:1,2,3", "normal:a,2,3", "normal:nan,2,30", "normal:5,inf,30"],
)
def test_what_is_no_distribution_is_refused(text):
    with pytest.raises(UnusableValueError, match=r"<lengths>: .* is no distribution; give uniform:LEAST,MOST"):
        Lengths.parse(text)


@pytest.mark.parametrize(
    "text", ["uniform:0,5", "uniform:9,5", "normal:100,5,50", "normal:5,-1,50", "lognormal:8,1,2e6", "uniform:1,7.5"]
)
def test_distributions_without_lengths_in_reach_are_refused(text):
    with pytest.raises(UnusableValueError, match=r"<lengths>: .* is not within 1 and its longest length"):
        Lengths.parse(text)


@pytest.mark.parametrize("kind", ["poisson", "constant", "bursty"])
def test_every_request_of_a_schedule_has_a_length(kind):
    demand = Demand(200.0, 2.0, 5, kind, lengths=Lengths.parse("uniform:2,9"))
    arrivals = demand.schedule()
    assert len(arrivals.lengths) == len(arrivals) > 100
    assert {*arrivals.lengths.tolist()} == {*range(2, 10)}
    assert not np.array_equal(arrivals.lengths[:50], demand.part(1, 2.0).schedule().lengths[:50])


def test_users_send_requests_of_lengths():
    demand = Demand(1.0, 1.0, users=3, lengths=Lengths.parse("uniform:2,9"))
    source, _ = demand.source(demand.schedule(), BatchPolicy())
    record = simulate(source, lambda batch, now_ns: 1_000_000, BatchPolicy())
    assert {*record.lengths.tolist()} == {*range(2, 10)}


def test_the_service_computes_the_longest_length_of_the_distribution_or_the_last_bucket():
    demand = Demand(10.0, 1.0, lengths=Lengths.parse("normal:20,5,77"))
    arrivals = demand.schedule()
    assert padded_length(demand, arrivals, (), "seq") == 77
    assert padded_length(demand, arrivals, (16, 32), "seq") == 32
    with pytest.raises(UnusableValueError, match=r"<lengths>: has lengths; name the dimension"):
        padded_length(demand, arrivals, (), None)
    with pytest.raises(UnusableValueError, match=r"<length_dim>: needs requests with lengths"):
        padded_length(Demand(10.0, 1.0), Demand(10.0, 1.0).schedule(), (), "seq")
