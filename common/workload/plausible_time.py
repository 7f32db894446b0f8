"""The part of a group's time on the host that its work explains, judged by other groups of the same run.

The first parallel node of a run may pay for waking the threads of a pool, and interrupts may hit any node. Such time is
no work that a card could take over. A peer is a group of the same kind with as many FLOPs and as many bytes or more.
On its evidence, a group needs

    dispatch + time of the peer · max(FLOPs / FLOPs of the peer, bytes / bytes of the peer)

with the shortest time of any group of the kind as the dispatch, which no node avoids. Small products attain a smaller
share of a peak than large ones. So only the part of a time above :data:`LARGE_FACTOR` times that is in doubt, and two
peers must confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LARGE_FACTOR = 4.0
PEERS = 2


@dataclass(frozen=True, slots=True)
class GroupTime:
    """The work of a group of contractions, and its time on the host in one run."""

    kind: str
    flops: int
    bytes: int
    host_us: float


def unexplained_us(groups: Sequence[GroupTime | None]) -> list[float]:
    """Return the part of each group's time that its work does not explain; 0 for None, a group without known work."""
    parts_us = [0.0] * len(groups)
    of_kind: dict[str, dict[int, GroupTime]] = {}
    for index, group in enumerate(groups):
        if group is not None and group.host_us > 0 and group.flops > 0 and group.bytes > 0:
            of_kind.setdefault(group.kind, {})[index] = group
    for members in of_kind.values():
        for index, part_us in zip(members, _of_one_kind([*members.values()]), strict=True):
            parts_us[index] = part_us
    return parts_us


def _of_one_kind(groups: Sequence[GroupTime]) -> list[float]:
    flops, moved, host_us = (
        np.array([getattr(group, name) for group in groups], dtype=float) for name in ("flops", "bytes", "host_us")
    )
    dispatch_us, parts_us = host_us.min(), []
    for index, group in enumerate(groups):
        is_peer = (flops >= group.flops) & (moved >= group.bytes)
        is_peer[index] = False
        shares = np.maximum(group.flops / flops[is_peer], group.bytes / moved[is_peer])
        needed_us = dispatch_us + np.sort(host_us[is_peer] * shares)[:PEERS]
        is_known = len(needed_us) == PEERS
        parts_us.append(max(0.0, group.host_us - LARGE_FACTOR * float(needed_us[-1])) if is_known else 0.0)
    return parts_us
