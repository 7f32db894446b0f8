"""Who may ask: the token's file, Host and Origin, limits, and the headers of every answer."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from common.messages.errors import PipelineError
from common.monitor.server import guard as guard_room
from common.monitor.server.doors import Doors, Room
from common.monitor.server.guard import MOST_ADDRESSES, MOST_BODY_BYTES, Bucket, Guard, GuardedApp, Limits, read_token

HOST = "127.0.0.1:8765"
TOKEN = "t" * 43
ROOM = Room(4, 4, 4)


@pytest.fixture
def guard():
    return Guard(TOKEN, [HOST, "localhost:8765"])


def refused(guard, **headers):
    """The status that a request without the token gets; None where it is answered."""
    rejection = guard.rejection("127.0.0.1", {"host": HOST, **headers}, is_holder=False)
    return rejection and rejection.status


def test_a_token_is_made_once_and_for_its_owner(tmp_path):
    path = tmp_path / "token"
    token = read_token(path)
    assert len(token) == 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token(path) == token
    assert read_token(tmp_path / "other") != token


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ("a" * 40, 0o644, "others may read"),
        ("a" * 40, 0o620, "others may read"),
        ("a" * 31, 0o600, "at least 32"),
        ("", 0o600, "at least"),
    ],
)
def test_a_token_that_protects_nothing_is_refused(tmp_path, content, mode, problem):
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(PipelineError, match=problem):
        read_token(path)


def test_a_token_that_cannot_be_made(tmp_path):
    with pytest.raises(PipelineError, match="the token cannot be written"):
        read_token(tmp_path / ("t" * 300))
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=r"cannot be made \(File exists\)"):
        read_token(tmp_path / "file" / "token")
    assert read_token(tmp_path / "new" / "token") == (tmp_path / "new" / "token").read_text().strip()


def test_a_token_for_which_no_space_is_left_leaves_no_file(tmp_path, monkeypatch):
    def full(descriptor, *_, **__):
        os.close(descriptor)
        return Path("/dev/full").open("w", encoding="ascii")

    monkeypatch.setattr(guard_room.os, "fdopen", full)
    with pytest.raises(PipelineError, match=r"cannot be written .*No space left"):
        read_token(tmp_path / "token")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8765.evil.example"])
def test_a_name_that_is_rebound_to_this_host_is_refused(guard, host):
    assert refused(guard, host=host) == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", f"http://{HOST}.evil", ""])
def test_another_site_is_refused(guard, origin):
    assert refused(guard, origin=origin) == 403


@pytest.mark.parametrize("headers", [{}, {"origin": f"http://{HOST}"}, {"origin": "http://LOCALHOST:8765"}])
def test_the_page_itself_and_other_programs_are_answered(guard, headers):
    assert refused(guard, **headers) is None


@pytest.mark.parametrize("length", [str(MOST_BODY_BYTES + 1), "-1", "many", "1e3"])
def test_a_body_that_is_too_long_is_not_read(guard, length):
    assert refused(guard, **{"content-length": length}) == 413


def test_tokens(guard):
    assert guard.knows(TOKEN)
    for wrong in (TOKEN[:-1], "", "ü" * 43, "\ud800", "\udcff" * 43):
        assert not guard.knows(wrong)


@pytest.mark.parametrize("is_holder", [False, True])
def test_too_many_requests(guard, monkeypatch, is_holder):
    monkeypatch.setattr(guard_room.time, "monotonic", lambda: 5.0)
    answers = [guard.rejection("a", {"host": HOST}, is_holder=is_holder) for _ in range(201)]
    assert answers[:200] == [None] * 200
    assert answers[200].status == 429
    assert guard.rejection("b", {"host": HOST}, is_holder=is_holder) is None
    assert guard.rejection("a", {"host": HOST}, is_holder=not is_holder) is None
    assert guard.rejection("a", {"host": HOST}, is_holder=False, is_websocket=True) is None
    monkeypatch.setattr(guard_room.time, "monotonic", lambda: 5.03)
    assert guard.rejection("a", {"host": HOST}, is_holder=is_holder) is None


IMAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
VISIT = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def test_the_images_of_another_sites_page_use_nothing_up(guard, monkeypatch):
    monkeypatch.setattr(guard_room.time, "monotonic", lambda: 5.0)
    for _ in range(320):
        assert refused(guard, **IMAGE) == 403
    assert refused(guard) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, None),
        ({"sec-fetch-site": "none"}, None),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        (VISIT, None),
        ({**VISIT, "sec-fetch-dest": "iframe"}, 403),
        ({**VISIT, "origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, 403),
    ],
)
def test_a_browser_says_who_asks(guard, headers, status):
    assert refused(guard, **headers) == status


def test_a_bucket_fills_no_further_than_its_size():
    bucket = Bucket(2.0, 3.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(100.5), bucket.take(100.5)] == [True, False]


def test_addresses_that_are_kept_are_limited():
    limits = Limits(1.0, 1.0)
    for place in range(MOST_ADDRESSES + 100):
        limits.of(str(place))
    assert len(limits._buckets) == MOST_ADDRESSES


def answered(headers, body=(), kind="http", client=("127.0.0.1", 1), room=ROOM):
    """What an application behind a guard sends, whose answer is the length of the body, and what was left unread."""

    async def app(scope, receive, send):
        read = (await receive())["body"] if kind == "http" else b""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(len(read)).encode()})

    pieces = [{"type": "http.request", "body": piece, "more_body": True} for piece in body]
    pieces.append({"type": "http.request", "body": b"", "more_body": False})
    sent = []

    async def receive():
        return pieces.pop(0)

    async def send(message):
        sent.append(message)

    doors = Doors(room)
    doors.enter(client, lambda: None)
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "headers": raw, "client": client}
    asyncio.run(GuardedApp(app, Guard(TOKEN, [HOST]), doors)(scope, receive, send))
    return sent, pieces


HOLDER = {"host": HOST, "authorization": f"Bearer {TOKEN}"}


def test_every_answer_has_the_headers_for_browsers():
    for headers, status in (({"host": HOST}, 200), ({"host": "evil"}, 421)):
        (start, _), _ = answered(headers)
        assert start["status"] == status
        given = dict(start["headers"])
        policy = given[b"content-security-policy"].decode()
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert given[b"x-content-type-options"] == b"nosniff"


def test_a_body_in_pieces_is_counted():
    half = b"x" * (MOST_BODY_BYTES // 2)
    assert answered(HOLDER, [half, half])[0][-1]["body"] == str(MOST_BODY_BYTES).encode()
    (start, body), unread = answered(HOLDER, [half, half, b"x", b"y" * 7])
    assert start["status"] == 413
    assert json.loads(body["body"])["detail"].startswith("a body has at most")
    assert not unread  # whoever sends all of it before it reads an answer would see a reset


def test_a_strangers_body_is_read_and_not_kept():
    (start, body), unread = answered({"host": HOST}, [b"x" * 1000])
    assert (start["status"], body["body"], unread) == (200, b"0", [])


def test_who_waits_for_leave_to_send_a_body_is_answered_first():
    declared = {"content-length": str(MOST_BODY_BYTES + 1), "expect": "100-continue"}
    (start, _), unread = answered({**HOLDER, **declared}, [b"x"])
    assert (start["status"], len(unread)) == (413, 2)


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        (["ü".encode()[:1], "ü".encode()[1:]], 200),  # a letter in two pieces
        (["ü".encode()[:1]], 400),
        ([b"{\xff}"], 400),
        (['{"model": "m"}'.encode("utf-16-le")], 400),
        (['{"model": "m"}'.encode("utf-16")], 400),
        (['{"model": "m"}'.encode("utf-32")], 400),
    ],
)
def test_a_body_is_text_in_utf_8(pieces, status):
    (start, _), _ = answered(HOLDER, pieces)
    assert start["status"] == status


def test_holders_beyond_the_room_are_told_so():
    (start, _), _ = answered(HOLDER, room=Room(1, 1, 0))
    assert start["status"] == 503


def test_a_websocket_of_another_site_is_closed_before_it_is_accepted():
    (message,), _ = answered({"host": HOST, "origin": "http://evil.example"}, kind="websocket")
    assert (message["type"], message["code"]) == ("websocket.close", 1008)
