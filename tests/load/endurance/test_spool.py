"""Items come back as they were added, in their order, and take no memory meanwhile."""

import tracemalloc

import numpy as np

from common.load.endurance.whole_load import Spool
from common.sensors.sensor import Sample


def test_items_come_back_in_their_order():
    spool = Spool()
    samples = [Sample(float(index), "psutil", "process", "handle_count", index / 7) for index in range(5)]
    spool.extend(samples[:2])
    assert spool.items() == samples[:2]
    spool.append(samples[2])
    spool.extend(samples[3:])
    assert spool.items() == samples
    assert Spool().items() == []


def test_a_spool_of_a_thousand_series_takes_as_much_memory_as_one_of_ten():
    spool = Spool()
    held = []
    tracemalloc.start()
    try:
        for index in range(1000):
            spool.append(np.arange(60.0) + index)
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(held[10:]) - held[10] < 120_000  # of the list above; the series are 480 kB
    assert [int(series[0]) for series in spool.items()] == [*range(1000)]
