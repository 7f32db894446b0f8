"""Ticks at absolute deadlines and slots, on a loop whose clock is ours."""

from __future__ import annotations

import asyncio

import pytest

from common.monitor.server.hub import LATEST_S, Hub, Slot, next_tick, tick_forever


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that does not wait: the time that it would wait for passes at once."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        select = self._selector.select
        self._selector.select = lambda timeout=None: self._pass(timeout) or select(0)

    def time(self):
        return self.now_s

    def _pass(self, timeout):
        assert timeout is not None, "nothing would ever happen"
        self.now_s += timeout


def on_virtual_time(make):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(make())


async def ticks_within(seconds, work):
    """Numbers and times of the ticks of a stretch of time; ``work`` moves the clock in each."""
    loop, seen = asyncio.get_running_loop(), []

    def tick(number, late_s):
        seen.append((number, loop.now_s, late_s))
        loop.now_s += work(number)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await tick_forever(tick)
    return seen


def test_ticks_whose_work_takes_time_do_not_drift():
    seen = on_virtual_time(lambda: ticks_within(60.05, lambda _: 0.031))
    assert [number for number, _, _ in seen] == [*range(1, 601)]
    assert all(time_s == pytest.approx(number / 10, abs=1e-6) for number, time_s, _ in seen)


def test_ticks_that_a_busy_host_delays_are_made_up_for():
    seen = on_virtual_time(lambda: ticks_within(20.05, lambda number: 0.73 if number == 17 else 0.001))
    assert [number for number, _, _ in seen] == [*range(1, 201)]
    late = [number for number, _, late_s in seen if late_s > 0.01]
    assert late == [*range(18, 25)]  # 0.73 s are seven deadlines


def test_deadlines_of_a_suspended_host_are_left_out():
    seen = on_virtual_time(lambda: ticks_within(20.05, lambda number: 7.0 if number == 17 else 0.0))
    numbers = [number for number, _, _ in seen]
    assert numbers[:17] == [*range(1, 18)]
    assert numbers[17] == 77  # 1.7 s + 7 s: deadlines before 7.7 s are hopelessly late
    assert numbers[17:] == [*range(77, 201)]


@pytest.mark.parametrize(
    ("done", "passed_s", "following"),
    [(0, 0.0, 1), (3, 0.31, 4), (3, 0.31 + LATEST_S, 4), (3, 0.55 + LATEST_S, 6), (600, 0.0, 601)],
)
def test_next_tick(done, passed_s, following):
    assert next_tick(done, passed_s, 10) == following


def test_every_client_gets_every_tick_and_a_slow_one_the_newest():
    async def scene():
        hub, taken = Hub(), {name: [] for name in ("a", "b", "c", "slow")}

        async def read(name, pause_s):
            slot = hub.join()
            while True:
                taken[name].append(int(await slot.take()))
                await asyncio.sleep(pause_s)

        readers = [asyncio.create_task(read(name, 1.7 if name == "slow" else 0.0)) for name in taken]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30.05):
                await tick_forever(lambda number, _: hub.publish(str(number)))
        for reader in readers:
            reader.cancel()
        return taken

    taken = on_virtual_time(scene)
    assert taken["a"] == taken["b"] == taken["c"] == [*range(1, 301)]
    assert taken["slow"][:3] == [1, 17, 34]  # what was newest when it asked again: 1.8 s, 3.5 s
    assert all(later > earlier for earlier, later in zip(taken["slow"], taken["slow"][1:], strict=False))


def test_a_client_that_takes_nothing_holds_one_message():
    async def scene():
        slot = Slot()
        for number in range(1000):
            slot.put(str(number))
        return await slot.take(), slot.skipped_count

    assert on_virtual_time(scene) == ("999", 999)


def test_a_client_that_has_left_gets_nothing():
    async def scene():
        hub = Hub()
        slot = hub.join()
        hub.leave(slot)
        hub.leave(slot)
        hub.publish("1")
        return len(hub), slot.skipped_count, slot._filled.is_set()

    assert on_virtual_time(scene) == (0, 0, False)
