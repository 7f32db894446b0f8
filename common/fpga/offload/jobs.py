"""Jobs with dependencies and shared resources, and the ways to schedule them."""

from __future__ import annotations

import heapq
import math
from bisect import bisect, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

JobKind = Literal["host", "call", "h2d", "d2h", "convert"]
JobKey = tuple[JobKind, int]  # kind, and index of the host's item, of the call's option or of the transfer's flow


@dataclass(slots=True)
class Job:
    """Work that occupies a resource."""

    key: JobKey  # kind and index; of the host, that of the first item
    resource: str
    label: str  # name of the item, option or tensor, for reports
    duration_us: float  # time that it occupies its resource
    launch_us: float = 0.0  # part of the duration before a kernel works
    # Jobs that come first, each with a delay after its finish; a negative one waits for a part of that job
    after: list[tuple[int, float]] = field(default_factory=list)
    tail_us: float = 0.0  # time after the finish until its result can be used
    items: tuple[int, ...] = ()  # items that the host computes one after the other as this job


def list_schedule(jobs: Sequence[Job]) -> list[float]:
    """Return start times if the job that can start first always does; ties go to the host, then calls, then transfers.

    The host keeps its order: each of its jobs waits for the one before.
    """
    return _run(jobs, *links(jobs, []))


def into_pauses(jobs: Sequence[Job]) -> list[float]:
    """Return start times if the jobs, that with the longest path to the end first, take the first pause long enough.

    A job that is needed late fills a pause of its resource and delays none that is needed sooner. Nor does it begin
    just before an urgent one arrives, as it would if a free resource never waited (serial schedule generation, Kolisch
    1996; ranks by critical path, Kohler 1975).
    """
    waits, followers = links(jobs, [])
    paths_us = _paths_to_end(jobs, waits, followers)
    ready_us, starts = [0.0] * len(jobs), [-1.0] * len(jobs)
    busy: dict[str, list[tuple[float, float]]] = {}  # starts and ends on each resource
    for index in released(waits, followers, [-path_us for path_us in paths_us]):
        job = jobs[index]
        taken = busy.setdefault(job.resource, [])
        starts[index] = start = _first_pause(taken, ready_us[index], job.duration_us)
        insort(taken, (start, start + job.duration_us))
        for follower, lag_us in followers[index]:
            ready_us[follower] = max(ready_us[follower], start + job.duration_us + lag_us)
    return starts


def released(
    waits: Sequence[int], followers: Sequence[Sequence[tuple[int, float]]], rank: Sequence[float]
) -> Iterator[int]:
    """Yield the jobs by rank, each after all that it waits for; ValueError: some wait for each other."""
    left = list(waits)
    queue = [(rank[index], index) for index, count in enumerate(left) if not count]
    heapq.heapify(queue)
    while queue:
        _, index = heapq.heappop(queue)
        yield index
        for follower, _ in followers[index]:
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(queue, (rank[follower], follower))
    if any(left):
        raise ValueError("calls wait for each other")


def _first_pause(taken: Sequence[tuple[float, float]], ready_us: float, duration_us: float) -> float:
    """Return when a job of this duration can start at the earliest beside those that are there, ordered by start."""
    start = ready_us
    for begin, end in taken[max(0, bisect(taken, (ready_us, math.inf)) - 1) :]:
        if start + duration_us <= begin:
            break
        start = max(start, end)
    return start


def _paths_to_end(
    jobs: Sequence[Job], waits: Sequence[int], followers: Sequence[Sequence[tuple[int, float]]]
) -> list[float]:
    """Return the time of the longest path from the start of each job to the end."""
    paths_us = [job.duration_us + job.tail_us for job in jobs]
    for index in reversed([*released(waits, followers, range(len(jobs)))]):  # any order that the jobs allow
        after_us = [jobs[index].duration_us + lag_us + paths_us[follower] for follower, lag_us in followers[index]]
        paths_us[index] = max([paths_us[index], *after_us])
    return paths_us


def in_order(jobs: Sequence[Job], order: Sequence[JobKey]) -> list[float]:
    """Return start times where each resource takes its jobs in the given order."""
    rank = {key: position for position, key in enumerate(order)}
    others = sorted((job for job in jobs if job.key[0] != "host"), key=lambda job: rank[job.key])
    last: dict[str, int] = {}
    number = {job.key: index for index, job in enumerate(jobs)}
    pairs = []
    for job in others:
        if job.resource in last:
            pairs.append((last[job.resource], number[job.key]))
        last[job.resource] = number[job.key]
    return _run(jobs, *links(jobs, pairs))


def links(jobs: Sequence[Job], pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[list[tuple[int, float]]]]:
    """Return for each job how many jobs it waits for, and the jobs that wait for it with their delays.

    The host's order is a chain of such dependencies.
    """
    followers: list[list[tuple[int, float]]] = [[] for _ in jobs]
    waits = [len(job.after) for job in jobs]
    for index, job in enumerate(jobs):
        for before, lag_us in job.after:
            followers[before].append((index, lag_us))
    hosts = [index for index, job in enumerate(jobs) if job.key[0] == "host"]
    for before, after in [*pairwise(hosts), *pairs]:
        followers[before].append((after, 0.0))
        waits[after] += 1
    return waits, followers


def _run(jobs: Sequence[Job], waits: list[int], followers: Sequence[Sequence[tuple[int, float]]]) -> list[float]:
    """Return start times; a job whose resource is busy is queued again for the time when it is free.

    If several jobs could start at one time, the first of them starts.
    """
    ready_us = [0.0] * len(jobs)
    free_us: dict[str, float] = {}
    starts = [-1.0] * len(jobs)
    queue = [(0.0, index) for index in range(len(jobs)) if not waits[index]]
    heapq.heapify(queue)
    while queue:
        start, index = heapq.heappop(queue)
        job = jobs[index]
        if (free := free_us.get(job.resource, 0.0)) > start:
            heapq.heappush(queue, (free, index))
            continue
        starts[index] = start
        end = free_us[job.resource] = start + job.duration_us
        for follower, lag_us in followers[index]:
            ready_us[follower] = max(ready_us[follower], end + lag_us)
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(queue, (ready_us[follower], follower))
    if any(waits):
        raise ValueError("calls wait for each other")
    return starts
