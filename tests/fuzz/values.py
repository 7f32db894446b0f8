"""Hostile values: numbers, texts and file contents at which programs have failed."""

from __future__ import annotations

import random

INTEGERS = (0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 65_535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1)
INTEGERS += (-(2**63), 10**9, 10**12, 1000, 20, 24, 40)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 0.5, 1e-9)
CONTROL = (
    "\x1b[2J\x1b[31mred",
    "a\nb",
    "a\rb",
    "\x00",
    "\x07bell",
    "\u202eevil\u202c",
    "\u2028",
    "\x9b31m",
    "\x7f",
    "a\tb",
)
TEXTS = (
    *("", " ", "a", "x" * 300, "y" * 5000, "é", "名前", "😀", "None", "nan", "inf", "0", "-1", "1e400", "true", "null"),
    *("../../../etc/passwd", "/dev/null", "a/b/c", "a,b", 'a"b', "a'b", "a;b", "=1+1", "<b>&amp;</b>", "<op_metrics>"),
    *("<peak_flops>", "{}", "[]", "%s%n", "a b", "-", "--out", "batch", "N", "seq", "unk__0", "batch*2", "batch+seq"),
    *("(" * 300, "1" * 400, "a" * 256 + ".csv", "\\", "~", "$HOME", "`id`", "\ufeff", "\u200b", "I\u0307", "ß"),
    *CONTROL,
)
CELLS = (
    *("", "nan", "NaN", "inf", "-inf", "Infinity", "1e308", "1e400", "-1", "0", "-0.0", "1.5", "9" * 400, "True"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e-320", "true", "FALSE", "yes", "abc"),
    *("[", "[1", "[]", "{}", "null", "[null]", '[[1,"N"]]', '{"a":1}', '{"a":{"b":[1]}}', "[[" * 600, "[1," * 40),
    *('["a","b"]', "[1e999]", "[NaN]", '"text"', "[true]", "[[-1,-1]]", "[[0]]", '["\\ud800"]', "[" * 60 + "]" * 60),
    *("a" * 300, "a/b", "../x", "=cmd()", "+5", "1_000", "0x10", " 7", "7 ", "１", "1,5", "1e5", "(gap)", "5" * 5000),
    *CONTROL,
)
SCALARS = (
    *("2026-02-30", "!!int x", "1" * 5000, "[" * 2000, "{" * 2000, "!!python/object:os.system x", "*nobody", "&a [*a]"),
    *(
        ".inf",
        "-.inf",
        ".nan",
        "1:30",
        "0o17",
        "0x1F",
        "1_000",
        "yes",
        "null",
        "~",
        "''",
        '""',
        "- 1",
        "[1, 2]",
        "{a: 1}",
    ),
    *(
        "2026-11-22",
        "2026-11-22T10:00:00Z",
        "!!binary aGVsbG8=",
        "!!set {a}",
        "!!float abc",
        "!!timestamp x",
        "!!bool x",
    ),
    *("-1", "0", "1e-320", "1e308", "1e400", "-1e308", "x" * 300, "x" * 5000, "u280", "fp32", "true", "[]", "{}"),
    *(
        "? [a]\n: b",
        "'unclosed",
        '"unclosed',
        "|\n  text",
        ">\n  text",
        "%TAG ! x",
        "@x",
        "`x`",
        "a: b: c",
        "\tx",
        "<<: *x",
    ),
    *(
        "9223372036854775808",
        "1.0e+9",
        "'1e9'",
        "[[[]]]",
        "é",
        "名前",
        '"\\0"',
        '"\\x1b[2J"',
        '"\\u202e"',
        '"\\ud800"',
        "!x 1",
    ),
    *(
        "{? {} : 1}",
        "[1, {a: [2]}]",
        "!!omap [a: 1]",
        "!!pairs [a: 1]",
        "!!str 1",
        "!!null x",
        "!!seq x",
        "!!map x",
        "=",
    ),
)
ENCODINGS = ("latin-1", "utf-16", "utf-8-sig", "utf-32", "cp037")


def broken_bytes(rng: random.Random, content: bytes) -> bytes:
    """Bytes that were flipped, cut, repeated or overwritten."""
    if not content:
        return rng.randbytes(9)
    at, size = rng.randrange(len(content)), min(len(content), 1 << rng.randrange(9))
    before, here, after = content[:at], content[at : at + size], content[at + size :]
    noise = rng.choice((rng.randbytes(size), bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * size))
    changed = (
        before,
        before + after,
        before + here + here + after,
        before + noise + after,
        before + noise + here + after,
    )
    return rng.choice((*changed, *(_flipped(rng, content) for _ in range(3))))


def _flipped(rng: random.Random, content: bytes) -> bytes:
    flipped = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 10))):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def recoded(rng: random.Random, content: bytes) -> bytes:
    """A text in another encoding, with other line ends, or with a byte that no text has."""
    text = content.decode("utf-8", "replace")
    change = rng.randrange(4)
    if change == 0:
        return ("é" + text).encode(rng.choice(ENCODINGS), "replace")
    if change == 1:
        return content.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b" \n", b"\x00\n", b"\x0b")))
    if change == 2:
        at = rng.randrange(len(content) + 1)
        return content[:at] + rng.choice((b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\x00")) + content[at:]
    return rng.choice((b"", b"\n", b" ", b"\x00" * 64, b"\xff\xfe", rng.randbytes(200), content * 2))


def hostile_json(rng: random.Random):
    """A value of JSON that is rarely what a reader expects."""
    return rng.choice(
        (
            None,
            True,
            False,
            "",
            [],
            {},
            [[]],
            {"a": {"b": []}},
            *INTEGERS,
            *TEXTS,
            1.5,
            1e308,
            -1e308,
            10**400,
            [None],
            [1],
        )
    )


def mutated_json(rng: random.Random, value):
    """A JSON value with one thing changed, somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        return _mutated_mapping(rng, value)
    if isinstance(value, list) and value and rng.random() < 0.8:
        at, change = rng.randrange(len(value)), rng.random()
        if change < 0.15:
            return value[:at] + value[at + 1 :]
        if change < 0.3:
            return [*value, value[at]]
        return [*value[:at], mutated_json(rng, value[at]), *value[at + 1 :]]
    return hostile_json(rng)


def _mutated_mapping(rng: random.Random, value: dict) -> dict:
    key, change = rng.choice(sorted(value)), rng.random()
    rest = {name: content for name, content in value.items() if name != key}
    if change < 0.12:
        return rest
    if change < 0.2:
        return {**rest, rng.choice(TEXTS): value[key]}
    if change < 0.25:
        return {**value, rng.choice(TEXTS): hostile_json(rng)}
    return {**value, key: mutated_json(rng, value[key])}
