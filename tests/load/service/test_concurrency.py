"""How sessions share a host: what the runtime would not do is refused, and settings follow for each session."""

import pytest

from common.load.service import concurrency
from common.load.service.concurrency import Concurrency, every_concurrency
from common.messages.errors import UnusableValueError
from common.runtime.sessions.session import SessionSettings


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    """A host whose process may use seven processors."""
    monkeypatch.setattr(concurrency, "available_processors", lambda: [2, 3, 5, 7, 11, 13, 17])


@pytest.mark.parametrize(
    ("asked", "sessions", "threads", "replicas", "provider", "text"),
    [
        ({"pool": "shared"}, 2, 1, 1, "CPU", r"<spinning>: runs is unavailable for a shared pool"),
        ({"pool": "shared", "spinning": "never"}, 2, 1, 1, "CPU", r"<spinning>: never is unavailable"),
        ({"pool": "shared", "workers": "processes", "spinning": "always"}, 2, 1, 1, "CPU", r"<pool>: shared, but"),
        ({"pool": "shared", "spinning": "always", "affinity": "pinned"}, 1, 1, 1, "CPU", r"<affinity>: .* unavailable"),
        ({"inter_threads": 2}, 1, 1, 1, "CUDA", r"<execution>: parallel is for the CPU alone"),
        ({"affinity": "pinned"}, 4, 2, 1, "CPU", r"<affinity>: pinned, but there are 8 threads and 7 processors"),
        ({"affinity": "pinned"}, 1, 1, 2, "CPU", r"<affinity>: .*leave <replicate> out"),
        ({"affinity": "pinned", "inter_threads": 3}, 1, 1, 1, "CPU", r"intra-op threads alone"),
    ],
)
def test_what_would_be_ignored_is_refused(asked, sessions, threads, replicas, provider, text):
    base = SessionSettings(threads, f"{provider}ExecutionProvider")
    assert not Concurrency(**asked).is_possible(sessions, base, replicas)
    with pytest.raises(UnusableValueError, match=text):
        Concurrency(**asked).require_possible(sessions, base, replicas)


def test_each_thread_gets_a_processor_of_its_own():
    base = SessionSettings(3, optimization="basic")
    Concurrency(affinity="pinned").require_possible(2, base)
    made = Concurrency(affinity="pinned", spinning="never").settings_of(2, base)
    assert [one.pools.processors for one in made] == [(2, 3, 5), (7, 11, 13)]
    assert {(one.threads, one.optimization, one.pools.spinning) for one in made} == {(3, "basic", "never")}


def test_a_shared_pool_has_the_threads_of_all_sessions():
    made = Concurrency(pool="shared", spinning="always", inter_threads=2).settings_of(5, SessionSettings(3))
    assert [one.pools.shared_threads for one in made] == [15] * 5
    assert [one.pools.inter_threads for one in made] == [2] * 5
    assert not any(one.pools.processors for one in made)


def test_every_combination_stands_once():
    several = (["threads", "processes"], ["own"], ["sequential", "parallel"], [2, 5], ["runs", "never"], ["free"])
    found = every_concurrency(*several)
    assert len(found) == len({*found}) == 2 * (1 + 2) * 2
    assert found[0] == Concurrency()  # the usual one comes first
    modes = {(one.execution, one.inter_threads) for one in found}
    assert modes == {("sequential", 0), ("parallel", 2), ("parallel", 5)}


def test_what_is_not_said_is_what_is_usual():
    own, shared = every_concurrency(["threads"], ["own", "shared"], ["parallel"], [], [], ["free"])
    assert (own.spinning, own.inter_threads, shared.spinning) == ("runs", 3, "always")


def test_threads_for_nodes_need_parallel_execution():
    with pytest.raises(UnusableValueError, match=r"<inter_threads>: has no effect .* <execution> parallel"):
        every_concurrency(["threads"], ["own"], ["sequential"], [3], [], ["free"])
