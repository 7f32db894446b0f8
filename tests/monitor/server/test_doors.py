"""Who stays where connections are too many: strangers leave, holders of the token do not."""

from __future__ import annotations

import resource

import pytest

from common.monitor.server import doors as doors_room
from common.monitor.server.doors import Doors, Room, free_descriptors


class Visitors:
    """Doors, and the connections that were dropped."""

    def __init__(self, room):
        self.doors, self.dropped = Doors(room), []

    def enter(self, *peers):
        for peer in peers:
            self.doors.enter(peer, lambda peer=peer: self.dropped.append(peer))


def of(address, *ports):
    return [(address, port) for port in ports]


def test_the_oldest_stranger_of_an_address_leaves_for_its_newest():
    visitors = Visitors(Room(strangers=5, of_address=3, holders=2))
    visitors.enter(*of("b", 9), *of("a", 1, 2, 3))
    assert visitors.dropped == []
    visitors.enter(*of("a", 4, 5))
    assert visitors.dropped == of("a", 1, 2)


def test_the_oldest_stranger_of_all_leaves_where_many_addresses_come():
    visitors = Visitors(Room(strangers=5, of_address=3, holders=2))
    visitors.enter(*((f"host {place}", 1) for place in range(7)))
    assert visitors.dropped == [("host 0", 1), ("host 1", 1)]


def test_who_showed_the_token_stays_whatever_comes():
    visitors = Visitors(Room(strangers=5, of_address=3, holders=2))
    visitors.enter(("a", 0))
    assert visitors.doors.recognise(("a", 0))
    assert visitors.doors.recognise(("a", 0))  # with each of its requests
    visitors.enter(*of("a", *range(1, 1000)))
    assert len(visitors.dropped) == 999 - 3
    assert ("a", 0) not in visitors.dropped
    assert visitors.doors.recognise(("a", 999))


def test_there_is_room_for_so_many_holders():
    visitors = Visitors(Room(strangers=5, of_address=5, holders=2))
    visitors.enter(*of("a", 1, 2, 3))
    assert [visitors.doors.recognise(peer) for peer in of("a", 1, 2, 3)] == [True, True, False]
    visitors.doors.leave(("a", 1))
    assert visitors.doors.recognise(("a", 3))
    assert not visitors.doors.recognise(("a", 4))  # is not in


def test_who_leaves_makes_room():
    visitors = Visitors(Room(strangers=2, of_address=2, holders=2))
    visitors.enter(*of("a", 1, 2))
    for peer in of("a", 1, 2, 3):  # the last was never in
        visitors.doors.leave(peer)
    visitors.enter(*of("a", 4, 5))
    assert visitors.dropped == []


def test_another_way_to_drop_a_stranger_keeps_its_place():
    visitors = Visitors(Room(strangers=2, of_address=2, holders=2))
    visitors.enter(*of("a", 1, 2))
    visitors.doors.enter(("a", 1), lambda: visitors.dropped.append("the transport"))
    visitors.enter(("a", 3))
    assert visitors.dropped == ["the transport"]


@pytest.mark.parametrize("descriptors", [-50, 0, 10, 100, 900, 10**6])
def test_all_of_them_together_are_below_the_limit(descriptors):
    room = Room.within(descriptors)
    assert 0 < room.of_address < room.strangers
    assert room.holders > 0
    assert room.strangers + room.holders <= max(descriptors, 2 * doors_room.LEAST_ROOM)


def test_descriptors_are_those_of_the_soft_limit(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert 0 < free_descriptors() < 256 - doors_room.OWN_DESCRIPTORS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert free_descriptors() == 2 * doors_room.MOST_HOLDERS
