"""The loop of generation: the prompt in one call, then token after token; the next token has the largest logit.

The caches stay values of the runtime. A cache that grows is the output of one call and the input of the next. A buffer
is bound as both. So the loop copies only what a server would copy, too. The time of a token is from the choice of the
token before it to its own choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from common.generation.decoder import CallSizes, Decoder, require_length, require_prompt
from common.messages.errors import PipelineError, UnusableValueError
from common.onnx_graph.caches import CachePair
from common.runtime.inputs.given import numpy_dtype
from common.runtime.inputs.values import Array, Value, value_of
from common.runtime.sessions.session import Session, run_bound

LONGEST_PROMPT = 1_000_000


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer: the call that gave it, its number in the vocabulary, and the time since the token before.

    In a loop of states, a token is a step, and ``chosen`` is None. ``sampling_us`` is the part of the time that the
    choice of the token by its logits took.
    """

    answer: int
    index: int
    call: CallSizes
    chosen: int | None
    time_us: float
    sampling_us: float


class TokenListener(Protocol):
    """Hears of each token as it comes, and of the last one of an answer; it must not wait."""

    def __call__(self, token: Token, *, is_last: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """An answer of ``count`` tokens to ``prompt``, after ``past`` tokens for which the caches hold zeros."""

    prompt: Sequence[int]
    count: int
    past: int = 0

    @property
    def length(self) -> int:
        """Tokens in the caches at the end: all but the last one of the answer."""
        return self.past + len(self.prompt) + self.count - 1


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """The answers to generate, each ``repeats`` times.

    ``room`` is the length of the buffers for the caches; None: they grow, or have a length that the model fixes.
    """

    answers: Sequence[AnswerPlan]
    repeats: int
    room: int | None = None

    def is_warmup(self, answer: int) -> bool:
        """Whether no figure counts an answer: the first of several, in which the runtime allocates its memory."""
        return self.repeats > 1 and answer % self.repeats == 0

    def place(self, answer: int) -> int:
        return answer // self.repeats


def drawn_prompt(decoder: Decoder, length: int, seed: int, quantity: str = "prompt") -> list[int]:
    """Draw numbers of the real vocabulary; ``quantity`` is the setting that asks for so many.

    An UnusableValueError says that there are too many, or a call takes one alone.
    """
    require_prompt(decoder, length, quantity)
    if length > LONGEST_PROMPT:
        raise UnusableValueError(quantity, f"{length} tokens", f"give at most {LONGEST_PROMPT:,}")
    vocabulary = (decoder.logits.shape if decoder.logits and decoder.logits.shape else (1,))[-1]
    size = vocabulary if isinstance(vocabulary, int) else 2
    return [int(number) for number in np.random.default_rng(seed).integers(0, size, length)]


def require_room(decoder: Decoder, plan: GenerationPlan) -> None:
    """Refuse a length for which the buffers have no room, and buffers that the model cannot use.

    The UnusableValueError names the length of the buffer, or a cache without a valid length.
    """
    require_measured(decoder, plan.room)
    require_length(decoder, max(answer.length for answer in plan.answers), "tokens", plan.room)


def require_measured(decoder: Decoder, room: int | None) -> None:
    """Refuse buffers for caches of which no operator reads the valid length, and a batch without sequences.

    The UnusableValueError names the first such cache.
    """
    if not decoder.sequences:  # the runtime divides by it, and the process ends
        raise UnusableValueError("dim", "a call takes no sequence", "give a batch of at least 1")
    if room is not None and not all(pair.is_measured for pair in decoder.pairs):
        name = next(pair.past.name for pair in decoder.pairs if not pair.is_measured)
        raise UnusableValueError("cache_room", f"no operator reads how much of {name} is valid", "leave it out")


def runtime_values(decoder: Decoder, seed: int) -> dict[str, Value]:
    """Return the inputs that no call changes, as values of the runtime."""
    return {name: value_of(array) for name, array in decoder.still_values(seed).items()}


def generate(
    session: Session,
    decoder: Decoder,
    plan: GenerationPlan,
    seed: int,
    path: Path,
    progress: Callable[[float, float], None],
    listener: TokenListener | None = None,
) -> tuple[list[Token], PipelineError | None]:
    """Return the tokens, and the error that ended the generation early; None: it did not end early.

    A PipelineError says that the runtime fails before the first token.
    """
    calls = Calls(session, decoder, runtime_values(decoder, seed), path, plan.room)
    tokens: list[Token] = []
    try:
        count = len(plan.answers) * plan.repeats
        for number in range(count):
            answer = plan.answers[plan.place(number)]
            for token in _answer(calls, answer, number):
                tokens.append(token)
                if listener is not None:
                    listener(token, is_last=token.index + 1 == answer.count)
            progress(number + 1, count)
    except PipelineError as error:
        if not tokens:
            raise
        return tokens, error
    return tokens, None


@dataclass(frozen=True, slots=True)
class Calls:
    """What all calls of a decoder have in common; ``still`` are the inputs that no call changes."""

    session: Session
    decoder: Decoder
    still: Mapping[str, Value]
    path: Path
    room: int | None = None

    def run(self, feeds: Mapping[str, Array], caches: dict[str, Value]) -> Value | None:
        """Run one call, and return its logits if the model has some; ``caches`` becomes the caches after the call."""
        decoder, inputs = self.decoder, {name: value_of(array) for name, array in feeds.items()}
        places = {pair.present.name: self._place(pair, caches) for pair in decoder.pairs}
        wanted = {**({decoder.logits.name: None} if decoder.logits else {}), **places}
        outputs = run_bound(self.session, {**inputs, **self.still, **caches}, wanted, self.path)
        # A buffer stays the value that keeps its memory alive; the runtime's own answer for it does not.
        caches |= {pair.past.name: places[pair.present.name] or outputs[pair.present.name] for pair in decoder.pairs}
        return outputs[decoder.logits.name] if decoder.logits else None

    def _place(self, pair: CachePair, caches: Mapping[str, Value]) -> Value | None:
        """Return where a cache is written: into its own buffer, or wherever the runtime puts it."""
        is_buffer = pair.kind == "buffer" or (pair.kind == "growing" and self.room is not None)
        return caches[pair.past.name] if is_buffer else None

    def caches(self, past: int) -> dict[str, Value]:
        call = CallSizes(past, 1, self.room)
        return {
            pair.past.name: value_of(np.zeros(self.decoder.shape(pair.past, call), numpy_dtype(pair.past)))
            for pair in self.decoder.pairs
        }


def _answer(calls: Calls, answer: AnswerPlan, number: int) -> Iterator[Token]:
    caches = calls.caches(answer.past)
    fed, past = answer.prompt, answer.past
    for index in range(answer.count):
        begin_ns, call = time.perf_counter_ns(), CallSizes(past, len(fed), calls.room)
        logits = calls.run(calls.decoder.feeds(fed, call), caches)
        sampling_ns = time.perf_counter_ns()
        chosen = int(logits.numpy()[0, -1].argmax()) if logits else None
        end_ns = time.perf_counter_ns()
        yield Token(number, index, call, chosen, (end_ns - begin_ns) / 1e3, (end_ns - sampling_ns) / 1e3)
        fed, past = [chosen or 0], call.total
