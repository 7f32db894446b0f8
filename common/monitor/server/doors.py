"""The connections that are let in; strangers get so few that a holder of the token always finds room.

Each connection needs a descriptor, and a silent client with thousands of connections would use up all of them. A
connection is a stranger's until something on it shows the token. If there are too many strangers, of one address or in
all, the oldest of them is closed for the newest. Room that is kept for holders of the token is never given to
strangers.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OWN_DESCRIPTORS = 64  # kept for files that this process opens later: the model, the history, the sensors
UNKNOWN_DESCRIPTORS = 64  # assumed open, if the system does not list them
LEAST_ROOM = 8
MOST_STRANGERS, MOST_OF_ADDRESS, MOST_HOLDERS = 512, 256, 1024
Peer = tuple[str, int]  # address and port


@dataclass(frozen=True, slots=True)
class Room:
    """The most connections at a time: of strangers, of strangers of one address, and of holders of the token."""

    strangers: int
    of_address: int
    holders: int

    @classmethod
    def within(cls, descriptor_count: int) -> Room:
        """Return the room that so many descriptors give: one half for strangers, the other one for holders."""
        half = max(LEAST_ROOM, descriptor_count // 2)
        strangers = min(MOST_STRANGERS, half)
        return cls(strangers, min(MOST_OF_ADDRESS, strangers * 2 // 3), min(MOST_HOLDERS, half))


def free_descriptors() -> int:
    """Return how many descriptors this process may still open for connections, below its soft limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 2 * MOST_HOLDERS
    try:
        open_count = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        open_count = UNKNOWN_DESCRIPTORS
    return soft - open_count - OWN_DESCRIPTORS


class Doors:
    """The open connections, in the order in which they came."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self._strangers: dict[Peer, Callable[[], object]] = {}
        self._of_address = Counter[str]()
        self._holders: set[Peer] = set()

    def enter(self, peer: Peer, drop: Callable[[], object]) -> None:
        """Let a stranger in, or note another way to drop one who is in; ``drop`` ends the connection at once."""
        if peer in self._strangers:
            self._strangers[peer] = drop
            return
        self._strangers[peer] = drop
        self._of_address[peer[0]] += 1
        if self._of_address[peer[0]] > self.room.of_address:
            self._drop(next(stranger for stranger in self._strangers if stranger[0] == peer[0]))
        elif len(self._strangers) > self.room.strangers:
            self._drop(next(iter(self._strangers)))

    def recognise(self, peer: Peer) -> bool:
        """Take note that the token was shown on a connection; return whether there is room for one more holder."""
        if peer in self._holders:
            return True
        if peer not in self._strangers or len(self._holders) >= self.room.holders:
            return False
        self._forget(peer)
        self._holders.add(peer)
        return True

    def leave(self, peer: Peer) -> None:
        """Forget a connection that has ended; it may be forgotten already."""
        self._holders.discard(peer)
        if peer in self._strangers:
            self._forget(peer)

    def _drop(self, peer: Peer) -> None:
        drop = self._strangers[peer]
        self._forget(peer)
        drop()

    def _forget(self, peer: Peer) -> None:
        del self._strangers[peer]
        self._of_address[peer[0]] -= 1
        if not self._of_address[peer[0]]:
            del self._of_address[peer[0]]
