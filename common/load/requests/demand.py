"""Which requests are asked for: by a schedule that is made or read from a file, or from users who wait for answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from common.load.requests.batching import BatchPolicy
from common.load.requests.lengths import Lengths
from common.load.requests.rate_profile import RateProfile, RateStep
from common.load.requests.schedules import Arrivals, Bursts, bursty, constant, poisson, profiled, replay
from common.load.requests.sources import ClosedLoop, OpenLoop, Source
from common.messages.errors import UnusableValueError

POISSON, CONSTANT, BURSTY = "poisson", "constant", "bursty"
KINDS = (POISSON, CONSTANT, BURSTY)
REPLAY, CLOSED = "replay", "closed"
NS_PER_S = 1e9
DRAWN = 10_000  # lengths that users send over and over
DEFAULT_BURSTS = Bursts()


@dataclass(frozen=True, slots=True)
class Demand:
    rate_hz: float  # mean requests per second of a schedule that is made
    duration_s: float  # time in which requests come
    seed: int = 0
    kind: str = POISSON  # how they come, one of ``KINDS``
    bursts: Bursts = DEFAULT_BURSTS
    profile: RateProfile | None = None  # rates over time, instead of one rate and one duration; not for bursts
    file: Path | None = None  # arrivals to replay instead
    users: int | None = None  # users who wait for answers instead; None for an open loop
    think_s: float = 0.0  # time of a user between an answer and the next request
    lengths: Lengths | None = None  # of the requests; None where all have one size, or the file has them

    @property
    def is_open(self) -> bool:
        return self.users is None

    @property
    def name(self) -> str:
        if not self.is_open:
            return CLOSED
        return REPLAY if self.file else f"{self.kind} profile" if self.profile else self.kind

    @property
    def steps(self) -> tuple[RateStep, ...]:
        """Parts of the load for which a rate is asked; none where a file or users say when requests come."""
        if self.profile:
            return self.profile.steps
        if not self.is_open or self.file:
            return ()
        return (RateStep(self.duration_s, self.rate_hz, self.rate_hz),)

    def part(self, index: int, duration_s: float) -> Demand:
        return replace(self, duration_s=duration_s, seed=self.seed + index)

    def schedule(self) -> Arrivals | None:
        """Return when requests come; None where that depends on answers.

        Raises:
            PipelineError: the file cannot be replayed.
            UnusableValueError: rate and duration make no schedule.
        """
        if not self.is_open:
            return None
        if self.file:
            return replay(self.file)
        if self.profile:
            arrivals = profiled(self.profile, None if self.kind == CONSTANT else self.seed)
        elif self.kind == BURSTY:
            arrivals = bursty(self.rate_hz, self.duration_s, self.bursts, self.seed)
        elif self.kind == CONSTANT:
            arrivals = constant(self.rate_hz, self.duration_s)
        else:
            arrivals = poisson(self.rate_hz, self.duration_s, self.seed)
        return replace(arrivals, lengths=self.lengths.draw(len(arrivals), self.seed)) if self.lengths else arrivals

    def source(self, arrivals: Arrivals | None, policy: BatchPolicy) -> tuple[Source, int]:
        """Return what sends the requests, and when the last one comes in ns.

        Raises:
            UnusableValueError: the queue is too short for users, who would ask again at once.
        """
        if arrivals is not None:
            return OpenLoop(arrivals), int(arrivals.intended_ns[-1]) if len(arrivals) else 0
        users, last_ns = self.users or 0, round(self.duration_s * NS_PER_S)
        if policy.capacity < users:
            problem = f"{policy.capacity} is below the {users} users, who would ask again at once"
            raise UnusableValueError("queue_max", problem, "leave it out")
        lengths = self.lengths.draw(DRAWN, self.seed).tolist() if self.lengths else (0,)
        return ClosedLoop(users, last_ns, think_ns=round(self.think_s * NS_PER_S), lengths=lengths), last_ns


def padded_length(demand: Demand, arrivals: Arrivals | None, buckets: tuple[int, ...], length_dim: str | None) -> int:
    """Return the longest request that the service computes; 0 where all have one size.

    Raises:
        UnusableValueError: lengths without the dimension that they are of, or this without lengths.
    """
    given = None if arrivals is None else arrivals.lengths
    if length_dim is None:
        named = {"lengths": demand.lengths is not None, "replay": given is not None, "buckets": bool(buckets)}
        for quantity, has_lengths in named.items():
            if has_lengths:
                raise UnusableValueError(quantity, "has lengths", "name the dimension that they are of: <length_dim>")
        return 0
    if demand.lengths is None and given is None:
        remedy = "give <lengths>, or <replay> FILE with a time in s and a length per line"
        raise UnusableValueError("length_dim", "needs requests with lengths", remedy)
    if buckets:
        return buckets[-1]
    return demand.lengths.most if demand.lengths else int(given.max()) if given is not None else 0
