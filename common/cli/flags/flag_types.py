"""Types of flags: which texts they accept, and which values they return."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from common.messages.names import quoted

Number = TypeVar("Number", int, float)
LONGEST_S = 365 * 86_400.0
LONGEST_NAME = 255  # of a file or a folder, in bytes
RATES = re.compile(r"([\d.]+(?:[eE][-+]?\d+)?)(?:\s*-\s*([\d.]+(?:[eE][-+]?\d+)?))?", re.ASCII)  # one, or two of a ramp
PHASES = ("prefill", "decode")
SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def _bounded(
    convert: Callable[[str], Number], text: str, *, minimum: float, wanted: str, maximum: float = math.inf
) -> Number:
    try:
        value = convert(text)
        if math.isfinite(value) and minimum <= value <= maximum:
            return value
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"{quoted(text)} is not {wanted}")


def at_least(minimum: int) -> Callable[[str], int]:
    """The type of a whole number that may not be smaller."""
    return partial(_bounded, int, minimum=minimum, wanted=f"a whole number of at least {minimum}")


def between(minimum: int, maximum: int) -> Callable[[str], int]:
    """The type of a whole number from ``minimum`` to ``maximum``."""
    wanted = f"a whole number from {minimum} to {maximum:,}"
    return partial(_bounded, int, minimum=minimum, maximum=maximum, wanted=wanted)


positive_int, non_negative_int = at_least(1), at_least(0)


def positive_ints(text: str) -> list[int]:
    """Different whole numbers of at least 1, separated by commas."""
    return list(dict.fromkeys(map(positive_int, text.split(","))))


def positive_float(text: str) -> float:
    return _bounded(float, text, minimum=math.ulp(0.0), wanted="a finite number above 0")


def share(text: str) -> float:
    """A number above 0, and at most 1."""
    value = positive_float(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number above 0 and at most 1")
    return value


def _of_percent(text: str) -> float:
    return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)


def percentage(text: str) -> float:
    """``5%`` or ``0.05``, as a share above 0."""
    return _bounded(_of_percent, text, minimum=math.ulp(0.0), wanted="a share, such as 5% or 0.05")


def fraction(text: str) -> float:
    """``0.1%`` or ``0.001``, from 0 to 1."""
    return _bounded(_of_percent, text, minimum=0, maximum=1, wanted="a share from 0 to 1, such as 0.1% or 0.001")


def path(text: str) -> Path:
    """A path that a file system can have."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in Path(text).parts):
        raise argparse.ArgumentTypeError(f"{quoted(text)} has a name of more than {LONGEST_NAME} bytes")
    return Path(text)


def sizes(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, separated by commas."""
    return tuple(positive_int(part.strip()) for part in text.split(","))


def paths(text: str) -> tuple[Path, ...]:
    """Different files, separated by commas."""
    return tuple(dict.fromkeys(path(part.strip()) for part in text.split(",")))


def some_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """The type of one or more of these names, separated by commas; a repeated one counts once."""

    def convert(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        for name in chosen:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{quoted(name)} is not one of {', '.join(names)}")
        return chosen

    return convert


def duration(text: str) -> float:
    """``500ms``, ``30s``, ``10m``, ``1h`` or plain seconds, in s."""
    number = text.strip().rstrip("hms")
    unit = text.strip()[len(number) :]
    wanted = "a duration above 0, such as 30s, 500ms, 10m or 1h"
    try:
        seconds = positive_float(number) * SECONDS[unit]
    except (argparse.ArgumentTypeError, KeyError):
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not {wanted}") from None
    if seconds > LONGEST_S:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is longer than a year")
    return seconds


def rate_steps(text: str) -> tuple[tuple[float, float, float], ...]:
    """``T:HZ,T:HZ-HZ,…``: how long each step is in s, and the rates at its begin and end; two rates are a ramp."""
    return tuple(_rate_step(part.strip()) for part in text.split(","))


def _rate_step(text: str) -> tuple[float, float, float]:
    time, _, rates = text.partition(":")
    if not (found := RATES.fullmatch(rates.strip())):
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not T:HZ or T:HZ-HZ, such as 60s:10 or 60s:10-50")
    rate = partial(_bounded, float, minimum=0, wanted="a finite rate of at least 0")
    return duration(time), rate(found[1]), rate(found[2] or found[1])


def duration_text(seconds: float) -> str:
    """Return a duration as :func:`duration` reads it, in the largest unit that it is a whole number of."""
    for unit in ("h", "m", "s"):
        if seconds >= SECONDS[unit] and seconds % SECONDS[unit] == 0:
            return f"{seconds / SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds / SECONDS['ms']:g}ms"


def _number_of(text: str, number: Callable[[str], Number]) -> tuple[str, Number]:
    """``NAME=NUMBER``; the name itself may hold ``=``."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not NAME=NUMBER")
    return name, number(value)


def binding(text: str) -> tuple[str, int]:
    """``NAME=NUMBER``: the size of a dynamic dimension; an empty cache has no rows."""
    return _number_of(text, non_negative_int)


def factor(text: str) -> tuple[str, float]:
    """``NAME=NUMBER``: how many times faster."""
    return _number_of(text, positive_float)


def phase_lengths(text: str) -> tuple[str, tuple[int, ...]]:
    """``prefill:N,N,…`` or ``decode:N,N,…``: a phase of a generative model, and lengths in tokens."""
    name, _, lengths = text.partition(":")
    if name not in PHASES or not lengths:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not prefill:N,N,... or decode:N,N,...")
    return name, sizes(lengths)


def assignment(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not NAME=VALUE")
    return name, value
