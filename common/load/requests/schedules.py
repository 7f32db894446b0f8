"""When requests arrive: at equal distances, as a Poisson process, by a profile of rates, in bursts, or by a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.load.requests.load_record import TimesNs
from common.load.requests.rate_profile import RateProfile
from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import quoted

NS_PER_S = 1e9
TWO_32, TWO_64 = 1 << 32, float(1 << 64)
LARGEST_SHARE = math.nextafter(1.0, 0.0)
GAPS = 1 << 16  # drawn at a time
MOST_REQUESTS = 50_000_000  # 1.6 GB of times; an hour at 10,000 requests/s has 36 million
FEWEST_COLUMNS, MOST_COLUMNS = 1, 2


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in the order in which they arrive."""

    intended_ns: TimesNs  # when each is intended to start, from the start of the load
    lengths: TimesNs | None = None  # of each along the input's variable axis, such as tokens; None: all have one size

    def __len__(self) -> int:
        return len(self.intended_ns)


@dataclass(frozen=True, slots=True)
class Bursts:
    """A Poisson process that a two-state Markov chain switches between a calm and a busy rate.

    Fischer, Meier-Hellstern 1993, The Markov-modulated Poisson process (MMPP) cookbook, Performance Evaluation 18(2).
    """

    peak: float = 4.0  # rate during a burst over the mean rate
    share: float = 0.1  # of the time in bursts; peak · share is at most 1, and then nothing comes between bursts
    mean_s: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Bursts:
        """Return the bursts of ``PEAK,SHARE,SECONDS``.

        Raises:
            UnusableValueError: these are no three numbers, or they make no bursts.
        """
        try:
            peak, share, mean_s = map(float, text.split(","))
        except ValueError:
            raise UnusableValueError("burst", f"{quoted(text)} is not PEAK,SHARE,SECONDS", "such as 4,0.1,1") from None
        return cls(peak, share, mean_s)

    def __post_init__(self) -> None:
        """Refuse figures out of range, and bursts that alone would exceed the mean rate."""
        if not (self.peak >= 1 and 0 < self.share < 1 and 0 < self.mean_s < math.inf):
            problem = f"a peak of {self.peak:g}, a share of {self.share:g} and {self.mean_s:g} s make no bursts"
            raise UnusableValueError("burst", problem, "the peak is at least 1, the share between 0 and 1")
        if self.peak * self.share > 1:
            problem = f"{self.peak:g} times the rate for {self.share:g} of the time exceeds the rate"
            raise UnusableValueError("burst", problem, f"the peak is at most {1 / self.share:g}")


def constant(rate_hz: float, duration_s: float) -> Arrivals:
    """Return requests at equal distances; the first starts at 0."""
    count = _require_count(rate_hz, duration_s)
    return Arrivals(np.round(np.arange(max(1, count)) * (NS_PER_S / rate_hz)).astype(np.int64))


def poisson(rate_hz: float, duration_s: float, seed: int) -> Arrivals:
    """Return the arrivals of a Poisson process: those that MLPerf LoadGen's Server scenario draws from this seed."""
    _require_count(rate_hz, duration_s)
    return Arrivals(np.concatenate([*_poisson_parts(rate_hz, round(duration_s * NS_PER_S), seed)]))


def _poisson_parts(rate_hz: float, end_ns: int, seed: int) -> Iterator[TimesNs]:
    """Yield arrivals before a time, the first at 0.

    LoadGen (``GenerateQueries`` in loadgen.cc) adds gaps of ``std::exponential_distribution``, each cut to whole
    nanoseconds. Its numbers are two outputs of the Mersenne Twister ``std::mt19937`` over 2^64
    (``std::generate_canonical`` of C++).
    """
    random, next_ns = np.random.RandomState(seed % TWO_32), 0
    while next_ns < end_ns:
        words = random.randint(0, TWO_32, (GAPS, 2), dtype=np.uint32).astype(np.float64)
        shares = np.minimum((words[:, 0] + words[:, 1] * TWO_32) / TWO_64, LARGEST_SHARE)
        gaps_ns = (-np.log(1 - shares) / rate_hz * NS_PER_S).astype(np.int64)
        times_ns = next_ns + np.concatenate([[0], gaps_ns.cumsum()])
        yield times_ns[:-1][times_ns[:-1] < end_ns]
        next_ns = int(times_ns[-1])


def bursty(rate_hz: float, duration_s: float, bursts: Bursts, seed: int) -> Arrivals:
    """Return arrivals whose rate switches between bursts and calm, with the given mean rate."""
    _require_count(rate_hz, duration_s)
    random = np.random.default_rng(seed)
    calm_hz = rate_hz * (1 - bursts.peak * bursts.share) / (1 - bursts.share)
    calm_s = bursts.mean_s * (1 - bursts.share) / bursts.share
    is_burst, times_s, expected = bool(random.random() < bursts.share), [0.0], [0.0]
    while times_s[-1] < duration_s:
        length_s = min(random.exponential(bursts.mean_s if is_burst else calm_s), duration_s - times_s[-1])
        expected.append(expected[-1] + length_s * (rate_hz * bursts.peak if is_burst else calm_hz))
        times_s.append(times_s[-1] + length_s)
        is_burst = not is_burst
    # A Poisson process of rate 1 in the time that runs as fast as requests are expected.
    places = poisson(1.0, expected[-1], seed).intended_ns / NS_PER_S if expected[-1] else np.zeros(0)
    return Arrivals(np.round(np.interp(places, expected, times_s) * NS_PER_S).astype(np.int64))


def profiled(profile: RateProfile, seed: int | None) -> Arrivals:
    """Return arrivals whose rate follows a profile: a Poisson process of this seed, or without one at equal distances.

    Each request of a process of rate 1 comes when the profile expects as many requests (inversion: Cinlar 1975,
    Introduction to Stochastic Processes, 4.7).
    """
    _require_count(profile.expected_count / profile.duration_s, profile.duration_s, "profile")
    drawn = constant(1.0, profile.expected_count) if seed is None else poisson(1.0, profile.expected_count, seed)
    times_s = profile.times_s(drawn.intended_ns / NS_PER_S)
    return Arrivals(np.round(times_s * NS_PER_S).astype(np.int64))


def _require_count(rate_hz: float, duration_s: float, quantities: str = "rate, duration") -> int:
    """Return how many requests to expect.

    Raises:
        UnusableValueError: the rate or the time is no finite number above 0, or memory does not hold the requests.
    """
    if not (math.isfinite(rate_hz) and rate_hz > 0):
        raise UnusableValueError("rate", f"{rate_hz:g} requests/s", "it takes a finite number above 0")
    if not (math.isfinite(duration_s) and duration_s > 0):
        raise UnusableValueError("duration", f"{duration_s:g} s", "it takes a finite number above 0")
    if (expected := rate_hz * duration_s) > MOST_REQUESTS:
        problem = f"{expected:.3g} requests are more than {MOST_REQUESTS:,}"
        raise UnusableValueError(quantities, problem, "give a lower rate or a shorter time")
    return math.ceil(expected)


def replay(path: Path) -> Arrivals:
    """Read arrivals from a CSV file: a time in s per line, and optionally a length.

    Lines that begin with ``#`` and a heading without digits are skipped. The first request starts the load.

    Raises:
        PipelineError: the file cannot be read, holds no request, or its times go backwards; the line is named.
    """
    times_s: list[float] = []
    lengths: list[int | None] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if fields := _fields(line, is_first=not times_s):
                    times_s.append(_time_s(path, number, fields, times_s[-1] if times_s else -math.inf))
                    lengths.append(_length(path, number, fields))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PipelineError(path, f"cannot be read ({reason})", "give a CSV file with a time in s per line") from error
    if not times_s:
        raise PipelineError(path, "holds no request", "give a CSV file with a time in s per line")
    if len({length is None for length in lengths}) > 1:
        raise PipelineError(path, "some requests have a length and some have none", "give every line one, or none")
    intended_ns = np.round((np.array(times_s) - times_s[0]) * NS_PER_S).astype(np.int64)
    known = [length for length in lengths if length is not None]
    return Arrivals(intended_ns, np.array(known, np.int64) if known else None)


def _fields(line: str, *, is_first: bool) -> list[str]:
    """Return the fields of a line; none of a comment, an empty line, or a heading."""
    text = line.strip()
    if not text or text.startswith("#") or (is_first and not any(map(str.isdigit, text))):
        return []
    return [field.strip() for field in text.split(",")]


def _time_s(path: Path, number: int, fields: list[str], before_s: float) -> float:
    if not FEWEST_COLUMNS <= len(fields) <= MOST_COLUMNS:
        raise PipelineError(path, f"line {number} has {len(fields)} columns", "a line has a time in s, and a length")
    try:
        time_s = float(fields[0])
    except ValueError:
        time_s = math.nan
    if not (math.isfinite(time_s) and abs(time_s) < 1e9):
        raise PipelineError(path, f"line {number}: {quoted(fields[0])} is no time", "give seconds")
    if time_s < before_s:
        raise PipelineError(path, f"line {number}: time goes back from {before_s:g} to {time_s:g} s", "sort the lines")
    return time_s


def _length(path: Path, number: int, fields: list[str]) -> int | None:
    if len(fields) < MOST_COLUMNS:
        return None
    text = fields[1]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise PipelineError(path, f"line {number}: {quoted(text)} is no length", "give a whole number above 0")
    return int(text)
