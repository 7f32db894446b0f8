"""What LoadGen is told before it sends requests; the runs themselves are in tests/stages/test_10_load_test.py."""

import os
import signal
import threading
import time

import pytest

from common.load.generator.loadgen import drive, results
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand

SLEEP_S = 0.002


class Sleeper:
    """No call is shorter than its sleep, on any machine."""

    stages = ()
    worker_count = 1

    def run(self, worker, batch):
        time.sleep(SLEEP_S)
        return ()

    def give_up(self, worker):
        pass


@pytest.fixture(autouse=True)
def _loadgen():
    pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")


def settings(folder):
    """The settings that LoadGen logged, by name."""
    lines = (folder / "mlperf_log_summary.txt").read_text().splitlines()
    return {name.strip(): value for name, colon, value in (line.partition(":") for line in lines) if colon}


@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "offline"])
def test_it_is_told_how_fast_the_service_is(tmp_path, scenario):
    """A batch of four takes 2 ms at least; the eight of a multi-stream are two batches."""
    drive(scenario, Sleeper(), BatchPolicy(most=4), Demand(1.0, 0.02), 1.0, tmp_path)
    per_query = {"single-stream": 1 / SLEEP_S, "multi-stream": 0.5 / SLEEP_S, "offline": 4 / SLEEP_S}[scenario]
    assert 0 < float(settings(tmp_path)["target_qps"]) <= per_query * 1.001


def test_the_seed_and_the_rate_are_those_that_were_asked_for(tmp_path):
    drive("server", Sleeper(), BatchPolicy(), Demand(211.0, 0.05, 7919), 1.0, tmp_path)
    found = settings(tmp_path)
    assert float(found["target_qps"]) == 211
    assert {int(found[f"{name}_rng_seed"]) for name in ("qsl", "sample_index", "schedule")} == {7919}
    assert results(tmp_path)["result_query_count"] == 100


def test_a_seed_of_any_size_is_one(tmp_path):
    drive("single-stream", Sleeper(), BatchPolicy(), Demand(211.0, 0.05, 9**40), 1.0, tmp_path)


def test_a_signal_while_the_service_is_probed_starts_no_loadgen(tmp_path):
    released = threading.Event()

    class Interrupted(Sleeper):
        """One signal, and no call after it: a second one would reach the tests themselves."""

        def run(self, worker, batch):
            os.kill(os.getpid(), signal.SIGINT)
            released.wait()
            return ()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            drive("offline", Interrupted(), BatchPolicy(), Demand(1.0, 0.02), 1.0, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
        released.set()
    assert not any(tmp_path.iterdir())
