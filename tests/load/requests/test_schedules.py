"""Arrivals against what their processes are known for, and files of arrivals with every fault."""

import json
import math

import numpy as np
import pytest

from common.load.requests.schedules import Bursts, bursty, constant, poisson, replay
from common.messages.errors import PipelineError, UnusableValueError


def test_constant_arrivals_start_at_zero_and_keep_their_distance():
    arrivals = constant(500, 0.01)
    assert arrivals.intended_ns.tolist() == [0, 2_000_000, 4_000_000, 6_000_000, 8_000_000]
    assert len(constant(3, 1)) == 3


def test_poisson_gaps_are_exponential_and_independent():
    arrivals = poisson(1000, 200, seed=7)
    gaps_s = np.diff(arrivals.intended_ns) / 1e9
    assert arrivals.intended_ns[-1] < 200e9
    assert len(arrivals) == pytest.approx(200_000, abs=4 * math.sqrt(200_000))
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1, abs=0.01)
    for quantile in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(gaps_s, quantile) == pytest.approx(-math.log(1 - quantile) / 1000, rel=0.02)
    assert abs(np.corrcoef(gaps_s[:-1], gaps_s[1:])[0, 1]) < 0.01


def test_equal_seeds_give_equal_arrivals_and_others_do_not():
    assert np.array_equal(poisson(50, 5, 1).intended_ns, poisson(50, 5, 1).intended_ns)
    assert not np.array_equal(poisson(50, 5, 1).intended_ns[:5], poisson(50, 5, 2).intended_ns[:5])


def test_the_mersenne_twister_is_that_of_the_standard():
    """The 10,000th output of the default std::mt19937, whose seed is 5489, is 4123659995 (C++20, [rand.predef])."""
    drawn = poisson(1.0, 5000.0, 5489 + 2**32).intended_ns  # LoadGen takes seeds modulo 2^32, too
    random, first = np.random.RandomState(5489), 3499211612
    assert random.randint(0, 2**32, 10_000, dtype=np.uint32)[[0, -1]].tolist() == [first, 4123659995]
    second = 581869302
    gap_s = -math.log(1 - (first + second * 2**32) / 2**64)
    assert drawn[:2].tolist() == [0, int(1e9 * gap_s)]


@pytest.mark.parametrize(("rate", "seconds", "seed"), [(300.0, 2, 7919), (1013.0, 1, 0)])
def test_equal_seeds_give_the_arrivals_of_loadgen(tmp_path, rate, seconds, seed):
    """LoadGen logs how many queries it made, one of them after the end, and when the next one would have come."""
    loadgen = pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")
    test, log = loadgen.TestSettings(), loadgen.LogSettings()
    test.scenario, test.mode = loadgen.TestScenario.Server, loadgen.TestMode.PerformanceOnly
    test.min_duration_ms, test.server_target_qps, test.schedule_rng_seed = 1000 * seconds, rate, seed
    log.log_output.outdir, log.log_output.copy_summary_to_stdout = str(tmp_path), False

    def answer(samples):
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(sample.id, 0, 0) for sample in samples])

    system = loadgen.ConstructSUT(answer, lambda: None)
    library = loadgen.ConstructQSL(1, 1, lambda _: None, lambda _: None)
    loadgen.StartTestWithLogSettings(system, library, test, log)
    loadgen.DestroyQSL(library)
    loadgen.DestroySUT(system)
    lines = (tmp_path / "mlperf_log_detail.txt").read_text().splitlines()
    found = {entry["key"]: entry["value"] for line in lines if (entry := json.loads(line.partition(" ")[2]))}
    ours = poisson(rate, 2 * seconds, seed).intended_ns
    assert len(poisson(rate, seconds, seed)) == found["generated_query_count"] - 1
    assert ours[found["generated_query_count"]] == pytest.approx(found["generated_query_duration"], abs=5)


def test_bursts_keep_the_mean_rate_and_scatter_more_than_a_poisson_process():
    bursts = Bursts(peak=5, share=0.1, mean_s=0.5)
    arrivals = bursty(400, 2000, bursts, seed=3)
    counts = np.bincount((arrivals.intended_ns // 10**8).astype(int), minlength=20_000)
    assert counts.mean() == pytest.approx(40, rel=0.1)
    # A mixture: 200 in a tenth of a second of burst, 22.2 of calm; a Poisson process of rate 40 has a variance of 40.
    between = 0.1 * (200 - 40) ** 2 + 0.9 * (200 / 9 - 40) ** 2
    assert 0.7 * between < counts.var() < 1.3 * (between + 40)
    assert (np.diff(arrivals.intended_ns) >= 0).all()


@pytest.mark.parametrize(
    "given", [(0.5, 0.1, 1.0), (2, 0, 1), (2, 1, 1), (2, 0.1, 0), (math.nan, 0.1, 1), (11, 0.1, 1)]
)
def test_bursts_that_cannot_be_are_refused(given):
    with pytest.raises(UnusableValueError, match="<burst>"):
        Bursts(*given)


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize(
    "make", [constant, lambda rate, s: poisson(rate, s, 0), lambda r, s: bursty(r, s, Bursts(), 0)]
)
def test_rates_that_are_no_rates_are_refused(make, rate):
    with pytest.raises(UnusableValueError, match=r"<rate>: .* it takes a finite number above 0"):
        make(rate, 1)


def test_more_requests_than_memory_holds_are_refused():
    with pytest.raises(UnusableValueError, match="<rate>, <duration>: 1e\\+09 requests are more than 50,000,000"):
        poisson(1e6, 1000, 0)


def test_a_file_is_replayed_from_its_first_request(tmp_path):
    path = tmp_path / "arrivals.csv"
    path.write_text("\ufefftime,tokens\r\n# taken on a Monday\r\n100.5,17\r\n\r\n100.507,19\r\n100.507, 23\r\n")
    arrivals = replay(path)
    assert arrivals.intended_ns.tolist() == [0, 7_000_000, 7_000_000]
    assert arrivals.lengths.tolist() == [17, 19, 23]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no request"),
        ("# nothing\n", "holds no request"),
        ("1\n2\n1.5\n", "line 3: time goes back from 2 to 1.5 s"),
        ("1\nnan\n", "line 2: 'nan' is no time"),
        ("1\ninf\n", "line 2: 'inf' is no time"),
        ("1\n2;3\n", "line 2: '2;3' is no time"),
        ("1,2,3\n", "line 1 has 3 columns"),
        ("1,0\n", "line 1: '0' is no length"),
        ("1,-5\n", "line 1: '-5' is no length"),
        ("1,2.5\n", "line 1: '2.5' is no length"),
        ("1,7\n2\n", "some requests have a length and some have none"),
    ],
)
def test_a_file_with_a_fault_names_its_line(tmp_path, text, problem):
    path = tmp_path / "arrivals.csv"
    path.write_text(text)
    with pytest.raises(PipelineError, match=problem) as caught:
        replay(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(PipelineError, match="No such file"):
        replay(tmp_path / "none.csv")
    (tmp_path / "utf16.csv").write_bytes("1,2\n".encode("utf-16"))
    with pytest.raises(PipelineError, match="it is not UTF-8 text"):
        replay(tmp_path / "utf16.csv")
