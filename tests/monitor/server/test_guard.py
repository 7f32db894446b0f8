"""Who may ask: the token's file, Host and Origin, limits, and the headers of every answer."""

from __future__ import annotations

import asyncio
import json
import stat

import pytest

from common.errors import PipelineError
from common.monitor.server import guard as guard_room
from common.monitor.server.guard import MOST_ADDRESSES, MOST_BODY_BYTES, Bucket, Guard, GuardedApp, Limits, read_token

HOST = "127.0.0.1:8765"
TOKEN = "t" * 43


@pytest.fixture
def guard():
    return Guard(TOKEN, [HOST, "localhost:8765"])


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
    with pytest.raises(PipelineError, match="cannot be written"):
        read_token(tmp_path / "missing" / "token")


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8765.evil.example"])
def test_a_name_that_is_rebound_to_this_host_is_refused(guard, host):
    assert guard.refusal("127.0.0.1", {"host": host})[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", f"http://{HOST}.evil", ""])
def test_another_site_is_refused(guard, origin):
    assert guard.refusal("127.0.0.1", {"host": HOST, "origin": origin})[0] == 403


@pytest.mark.parametrize("headers", [{}, {"origin": f"http://{HOST}"}, {"origin": "http://LOCALHOST:8765"}])
def test_the_page_itself_and_other_programs_are_answered(guard, headers):
    assert guard.refusal("127.0.0.1", {"host": HOST, **headers}) is None


@pytest.mark.parametrize("length", [str(MOST_BODY_BYTES + 1), "-1", "many", "1e3"])
def test_a_body_that_is_too_long_is_not_read(guard, length):
    assert guard.refusal("127.0.0.1", {"host": HOST, "content-length": length})[0] == 413


def test_tokens():
    guard = Guard(TOKEN, [HOST])
    assert guard.admits("a", TOKEN)
    assert not guard.admits("a", TOKEN[:-1])
    assert not guard.admits("a", "")
    assert not guard.admits("a", "ü" * 43)


def test_who_guesses_tokens_is_no_longer_asked(monkeypatch):
    monkeypatch.setattr(guard_room.time, "monotonic", lambda: 1000.0)
    guard = Guard(TOKEN, [HOST])
    assert not any(guard.admits("guesser", f"{place:043}") for place in range(10))
    assert not guard.admits("guesser", TOKEN)
    assert guard.admits("other", TOKEN)
    monkeypatch.setattr(guard_room.time, "monotonic", lambda: 1006.0)
    assert guard.admits("guesser", TOKEN)


def test_too_many_requests(monkeypatch):
    monkeypatch.setattr(guard_room.time, "monotonic", lambda: 5.0)
    guard = Guard(TOKEN, [HOST])
    answers = [guard.refusal("a", {"host": HOST}) for _ in range(201)]
    assert answers[:200] == [None] * 200
    assert answers[200][0] == 429
    assert guard.refusal("b", {"host": HOST}) is None
    monkeypatch.setattr(guard_room.time, "monotonic", lambda: 5.03)
    assert guard.refusal("a", {"host": HOST}) is None


def test_a_bucket_fills_no_further_than_its_size():
    bucket = Bucket(2.0, 3.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(100.5), bucket.take(100.5)] == [True, False]


def test_addresses_that_are_kept_are_limited():
    limits = Limits(1.0, 1.0)
    for place in range(MOST_ADDRESSES + 100):
        limits.of(str(place))
    assert len(limits._buckets) == MOST_ADDRESSES


def answered(headers, body=(), kind="http"):
    """What an application behind a guard sends, whose answer is the length of the body."""

    async def app(scope, receive, send):
        read, more = b"", kind == "http"
        while more:
            message = await receive()
            read, more = read + message["body"], message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(len(read)).encode()})

    pieces = iter([*({"type": "http.request", "body": piece, "more_body": True} for piece in body)])
    end, sent = {"type": "http.request", "body": b"", "more_body": False}, []

    async def receive():
        return next(pieces, end)

    async def send(message):
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "headers": raw, "client": ("127.0.0.1", 1)}
    asyncio.run(GuardedApp(app, Guard(TOKEN, [HOST]))(scope, receive, send))
    return sent


def test_every_answer_has_the_headers_for_browsers():
    for headers, status in (({"host": HOST}, 200), ({"host": "evil"}, 421)):
        start, _ = answered(headers)
        assert start["status"] == status
        given = dict(start["headers"])
        policy = given[b"content-security-policy"].decode()
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert given[b"x-content-type-options"] == b"nosniff"


def test_a_body_in_pieces_is_counted():
    half = b"x" * (MOST_BODY_BYTES // 2)
    assert answered({"host": HOST}, [half, half])[-1]["body"] == str(MOST_BODY_BYTES).encode()
    start, body = answered({"host": HOST}, [half, half, b"x"])
    assert start["status"] == 413
    assert json.loads(body["body"])["detail"].startswith("a body has at most")


def test_a_websocket_of_another_site_is_closed_before_it_is_accepted():
    (message,) = answered({"host": HOST, "origin": "http://evil.example"}, kind="websocket")
    assert (message["type"], message["code"]) == ("websocket.close", 1008)
