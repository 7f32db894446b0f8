"""Requests of token streams: their lengths, fixed or drawn from distributions, or times and lengths from a trace."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from common.generation.decoder import Decoder, require_length, require_prompt
from common.generation.loop import require_measured
from common.generation.streams.engine import StreamRequest
from common.load.requests.demand import Demand
from common.load.requests.lengths import LONGEST, Lengths
from common.messages.errors import PipelineError, UnusableValueError

NS_PER_S = 1e9
COLUMNS = 3
FORM = "give a CSV file with a time in s, tokens of the prompt and tokens of the answer per line"


def stream_requests(intended_ns: Sequence[int], prompts: Sequence[int], outputs: Sequence[int]) -> list[StreamRequest]:
    """Return requests from their times and lengths, each in the order of arrival."""
    return [StreamRequest(*map(int, request)) for request in zip(intended_ns, prompts, outputs, strict=True)]


def scheduled_requests(demand: Demand, prompts: str, outputs: str) -> list[StreamRequest]:
    """Return requests that come by a schedule; ``prompts`` and ``outputs`` say how long each is, in tokens.

    An UnusableValueError says that no request comes, or a text says no lengths.
    """
    schedule = demand.schedule()
    times = [] if schedule is None else schedule.intended_ns.tolist()
    if not times:
        raise UnusableValueError("rate", "no request comes in that time", "give a higher rate or a longer <duration>")
    prompt_counts = token_counts("input_tokens", prompts, len(times), demand.seed)
    output_counts = token_counts("output_tokens", outputs, len(times), demand.seed + 1)
    return stream_requests(times, prompt_counts, output_counts)


def token_counts(quantity: str, text: str, count: int, seed: int) -> list[int]:
    """Return so many lengths in tokens: all the same, or drawn; UnusableValueError: the text says no length."""
    if text.isascii() and text.isdigit() and text.strip("0"):
        digits = text.lstrip("0")
        if len(digits) > len(str(LONGEST)) or int(digits) > LONGEST:
            raise UnusableValueError(quantity, f"{digits} tokens", f"give at most {LONGEST:,}")
        return [int(digits)] * count
    return [int(length) for length in Lengths.parse(text, quantity).draw(count, seed)]


def offered_per_s(requests: Sequence[StreamRequest]) -> float | None:
    """Return the rate of the schedule in requests per second; a single request has none."""
    seconds = requests[-1].intended_ns / NS_PER_S
    return (len(requests) - 1) / seconds if seconds else None


def require_streams(decoder: Decoder, requests: Sequence[StreamRequest], room: int | None) -> None:
    """Refuse a model that gives a stream no tokens, and requests that its buffers of ``room`` tokens do not hold."""
    if decoder.tokens is None:
        raise UnusableValueError("model", "takes no tokens", "measure its loop with <generation_summary>")
    if (sequences := decoder.sequences) != 1:
        problem = f"a call takes {sequences} sequences, and a stream is one"
        raise UnusableValueError("dim", problem, "leave the batch at 1: streams share calls with <cache_room>")
    longest = max(request.prompt_count + request.output_count - 1 for request in requests)
    require_measured(decoder, room)
    require_prompt(decoder, max(request.prompt_count for request in requests), "input_tokens")
    require_length(decoder, longest, "output_tokens", room)


def trace_requests(path: Path) -> list[StreamRequest]:
    """Read requests from a CSV file: time in s, tokens of the prompt, tokens of the answer. The first one starts at 0.

    Lines that begin with ``#`` and a heading without digits are skipped.

    Raises:
        PipelineError: the file cannot be read or holds no request, or a line is no request; the error names the line.
    """
    requests: list[StreamRequest] = []
    first_s = 0.0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, fields in enumerate(csv.reader(file), 1):
                is_heading = not requests and not any(map(str.isdigit, "".join(fields)))
                if not fields or fields[0].startswith("#") or is_heading:
                    continue
                time_s, prompt, output = _request(path, number, fields)
                first_s = first_s if requests else time_s
                after_ns = round((time_s - first_s) * NS_PER_S)
                if requests and after_ns < requests[-1].intended_ns:
                    raise PipelineError(path, f"line {number}: time goes back to {time_s:g} s", "sort the lines")
                requests.append(StreamRequest(after_ns, prompt, output))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no CSV text"
        raise PipelineError(path, f"cannot be read ({reason})", FORM) from error
    if not requests:
        raise PipelineError(path, "holds no request", FORM)
    return requests


def _request(path: Path, number: int, fields: Sequence[str]) -> tuple[float, int, int]:
    if len(fields) != COLUMNS:
        raise PipelineError(path, f"line {number} has {len(fields)} columns instead of {COLUMNS}", FORM)
    try:
        time_s, prompt, output = float(fields[0]), int(fields[1]), int(fields[2])
    except ValueError:
        time_s, prompt, output = math.nan, 0, 0
    if not (math.isfinite(time_s) and abs(time_s) < 1e9 and 0 < prompt <= LONGEST and 0 < output <= LONGEST):
        raise PipelineError(path, f"line {number} is no request", FORM)
    return time_s, prompt, output
