"""The ring of samples: the newest ones in order, whatever the writer does while a reader copies them."""

import threading
import tracemalloc

import pytest

from common.errors import PipelineError
from common.sensors.sensor import Sample
from common.sensors.sinks import SampleRing


def numbered(start, end):
    return [Sample(float(index), "fake", "psys", "power_w", 2.0 * index) for index in range(start, end)]


@pytest.mark.parametrize("written", [0, 1, 6, 7, 8, 9, 23])
def test_the_newest_samples_are_kept_in_order(written):
    ring = SampleRing(7)
    for sample in numbered(0, written):
        ring.extend([sample])
    assert ring.newest() == numbered(max(0, written - 7), written)


def test_one_reading_may_be_longer_than_the_ring():
    ring = SampleRing(5)
    ring.extend(iter(numbered(0, 17)))
    assert ring.newest() == numbered(12, 17)


@pytest.mark.parametrize(("count", "expected"), [(0, (11, 11)), (3, (8, 11)), (5, (6, 11)), (99, (6, 11))])
def test_a_reader_may_ask_for_fewer(count, expected):
    ring = SampleRing(5)
    ring.extend(numbered(0, 11))
    assert ring.newest(count) == numbered(*expected)


@pytest.mark.parametrize("capacity", [0, -3])
def test_a_ring_without_room_is_refused(capacity):
    with pytest.raises(PipelineError, match=f"sample ring: cannot keep {capacity} samples"):
        SampleRing(capacity)


class InterruptedSlots(list):
    """Slots whose copy is interrupted after ``cut`` of them, where ``meanwhile`` is called."""

    def __init__(self, slots, cut, meanwhile):
        super().__init__(slots)
        self.cut = cut
        self.meanwhile = meanwhile

    def __getitem__(self, key):
        if not isinstance(key, slice):
            return super().__getitem__(key)
        first = super().__getitem__(slice(self.cut))
        self.meanwhile()
        return first + super().__getitem__(slice(self.cut, None))


@pytest.mark.parametrize("in_a_slot", [False, True])
@pytest.mark.parametrize("capacity", [1, 5])
def test_a_copy_that_the_writer_interrupts_anywhere_is_a_run_of_true_samples(capacity, in_a_slot):
    """Every cut of the copy with every number of samples written in it; also with the writer inside a slot."""
    for before in range(2 * capacity + 3):
        for meanwhile in range(capacity + 3):
            for cut in range(capacity + 2):
                ring = SampleRing(capacity)
                ring.extend(numbered(0, before))

                def write(ring=ring, before=before, meanwhile=meanwhile):
                    ring.extend(numbered(before, before + meanwhile))
                    if in_a_slot:  # the slot is filled, the count is not yet raised
                        ring._slots[(before + meanwhile) % (capacity + 1)] = "half written"

                ring._slots = InterruptedSlots(ring._slots, cut, write)
                oldest = max(0, before + meanwhile - capacity)
                assert ring.newest() == numbered(oldest, before)


def test_a_reader_beside_a_writer_sees_consecutive_samples():
    """Real threads; the reader stops at the writer's last sample, so however they are scheduled, both end."""
    ring, last = SampleRing(31), 20_000
    writer = threading.Thread(target=lambda: [ring.extend([sample]) for sample in numbered(0, last)])
    writer.start()
    seen = []
    while not seen or seen[-1].time_s < last - 1:
        seen = ring.newest()
        assert [sample.time_s for sample in seen] == [seen[0].time_s + step for step in range(len(seen))]
    writer.join()
    assert len(seen) == 31


def test_memory_stays_what_it_is_when_the_ring_is_full():
    ring = SampleRing(100)
    ring.extend(numbered(0, 101))  # every slot is filled
    tracemalloc.start()
    ring.extend(numbered(0, 101))  # now by samples that are traced
    before_bytes, _ = tracemalloc.get_traced_memory()
    for start in range(0, 20_000, 100):
        ring.extend(numbered(start, start + 100))
    after_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after_bytes - before_bytes < 500_000  # 20,000 samples take more than 2 MB; other threads allocate a little
