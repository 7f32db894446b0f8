"""What is kept of a long load, in memory that does not grow: items in a file, latencies in a histogram."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np

from common.latency.dependence import Dependence
from common.latency.histogram import Histogram
from common.latency.statistics import QUANTILES, percentile_columns
from common.load.results.load_figures import LoadTest
from common.load.results.validity import undelayed_us, widened

Item = TypeVar("Item")


class Spool(Generic[Item]):
    """Items in a file without a name, in the order in which one thread appends them.

    A load test judges whether the memory of its own process grows. A list of what it measured would grow, too, and at
    few requests per second by more bytes for each than a leak that is worth finding.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the spool

    def append(self, item: Item) -> None:
        pickle.dump(item, self._file, pickle.HIGHEST_PROTOCOL)

    def extend(self, items: Iterable[Item], /) -> None:
        for item in items:
            self.append(item)

    def items(self) -> list[Item]:
        """Return all items, once nothing more is added."""
        end = self._file.seek(0, 2)
        self._file.seek(0)
        items = list[Item]()
        while self._file.tell() < end:
            items.append(pickle.load(self._file))
        return items


class WholeLoad:
    """Percentiles of all valid parts."""

    def __init__(self) -> None:
        self._histogram, self._undelayed = Histogram(), Histogram()  # the other one without the generator's delays
        self._weighted = dict.fromkeys(QUANTILES, 0.0)  # requests times how much more they vary than independent ones

    def add(self, test: LoadTest) -> None:
        """Count the requests of a part, unless it has no latencies."""
        if test.validity.status != "valid":
            return
        latencies_us = test.record.waited_us
        series = Dependence(latencies_us, test.latency_factor)
        self._histogram.add(np.rint(1e3 * latencies_us).astype(np.int64))
        self._undelayed.add(np.rint(1e3 * undelayed_us(test.record)).astype(np.int64))
        for name, quantile in QUANTILES.items():
            self._weighted[name] += len(latencies_us) * series.quantile_factor(quantile)

    def figures(self) -> dict[str, float | int | None]:
        """Return how many requests count, and their percentiles with limits."""
        both, count = (self._histogram, self._undelayed), self._histogram.count
        estimates = {
            name: widened(*(load.dependent_percentile_us(quantile, self._weighted[name] / count) for load in both))
            for name, quantile in (QUANTILES if count else {}).items()
        }
        empty = {f"{name}{end}_us": None for name in QUANTILES for end in ("", "_low", "_high")}
        columns = {**empty, **percentile_columns(estimates)}
        return {"counted_request_count": count, **{f"request_{name}": value for name, value in columns.items()}}
