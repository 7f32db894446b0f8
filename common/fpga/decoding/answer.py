"""A whole answer on host and card: where each phase runs, how long each token takes, and what crosses the link.

An answer takes a prompt of P tokens and has N tokens. The call for the prompt gives the first one, N - 1 calls the
others. Each phase runs as a whole on the host or on the card (a cut). The card keeps weights and caches in its memory;
it looks tokens up and chooses the next one. So the tokens of a call cross the link, and the chosen one comes back. If
the model has no table of embeddings, the host looks up, and the rows of the table cross. If the phases run on different
sides, the caches of the prompt cross once.

A loop of states has no tokens. Its first step is a call as the others are, and its states cross once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.fpga.decoding.law import CallDemand, CardRates, DecodeLaw, prompt_cases_us, token_cases_us
from common.fpga.decoding.prompt import PromptPlan
from common.fpga.device.board import Board
from common.fpga.speedup.draws import DRAWS, Draws, Values
from common.fpga.speedup.odds import Odds, odds_of
from common.intervals import NOTHING, ThreePoint, combine, summed

TOKEN_BYTES = 8  # a token is an int64 in the graphs that exporters write
HOST, CARD = "host", "card"
OF_HOST, OF_TOKENS, OF_PROMPTS = "times of the host", "efficiency of decoding engines", "efficiency of a prompt"
LAUNCH, LINK = "time of a launch", "rate of the link"
TERMS = (OF_HOST, OF_TOKENS, OF_PROMPTS, LAUNCH, LINK)


@dataclass(frozen=True, slots=True)
class Cut:
    """The side, ``host`` or ``card``, on which each phase runs."""

    prefill: str
    decode: str


CUTS = (Cut(CARD, CARD), Cut(HOST, CARD), Cut(CARD, HOST))


@dataclass(frozen=True, slots=True)
class AnswerDemand:
    """What an answer asks of the card in one weight format."""

    prompt: CallDemand  # the call for the prompt
    tokens: Sequence[CallDemand]  # the calls for the other tokens, in their order
    resident_bytes: int  # weights, and the caches after the last token
    prompt_cache_bytes: int  # caches after the prompt
    logit_bytes: int  # scores of the vocabulary for one token
    prompt_count: int  # tokens of the prompt; 0 for a loop of states
    # The prompt on an array; None for that of published decoders, and for a loop of states
    prompt_plan: PromptPlan | None = None
    # What crosses the link for a token that goes in: its number, or its row in a table of embeddings
    input_bytes: int = TOKEN_BYTES
    # The kernel of decode on all ports of the memory but one, by name; None where none fits the board
    decode_engine: str | None = None

    @property
    def is_loop(self) -> bool:
        return self.prompt_count == 0

    @property
    def token_link_bytes(self) -> int:
        """Bytes that cross the link for a call after the first: a token, and the chosen one."""
        return 0 if self.is_loop else self.input_bytes + TOKEN_BYTES

    @property
    def prompt_link_bytes(self) -> int:
        """Bytes that cross the link for the first call: the prompt, and the chosen token."""
        return 0 if self.is_loop else self.prompt_count * self.input_bytes + TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """Times of an answer on the host; a short time is pessimistic for the card."""

    prompt_us: ThreePoint
    tokens_us: ThreePoint

    @property
    def answer_us(self) -> ThreePoint:
        return summed((self.prompt_us, self.tokens_us))

    def answer_us_of(self, cut: Cut, side: str) -> ThreePoint:
        """Return the part of the answer's time whose phases a cut has on a side."""
        phases = ((cut.prefill, self.prompt_us), (cut.decode, self.tokens_us))
        return summed(time_us if of_phase == side else NOTHING for of_phase, time_us in phases)


@dataclass(frozen=True, slots=True)
class CutAnswer:
    cut: Cut
    parts_us: Mapping[str, ThreePoint]  # the terms of the answer's time by the cause that they share, in three cases
    first_token_us: ThreePoint  # time to the first token
    link_bytes: int  # over the whole answer
    token_link_bytes: int  # for each token after the first
    odds: Odds  # of the gain over the host alone

    @property
    def answer_us(self) -> ThreePoint:
        return summed(self.parts_us.values())


def card_rates(board: Board) -> CardRates:
    """Return what bounds a decoder on a board: its memory, and its DSPs in bf16 for tokens and in int8 for prompts."""
    return CardRates(board.memory.bytes_per_s, board.peak_flop_per_s("bf16"), board.peak_flop_per_s("int8"))


def cut_answer(law: DecodeLaw, board: Board, demand: AnswerDemand, host: HostAnswer, cut: Cut) -> CutAnswer:
    """Return the times of an answer with a cut, and the distribution of its gain over the host alone."""
    rates = card_rates(board)
    if demand.prompt_plan is not None:
        first_us = demand.prompt_plan.time_us
    else:
        first_us = (token_cases_us if demand.is_loop else prompt_cases_us)(law, rates, demand.prompt)
    prefills, decodes = cut.prefill == CARD, (cut.decode == CARD) * len(demand.tokens)
    of_prompt = first_us if prefills else NOTHING
    of_tokens = summed(token_cases_us(law, rates, call) for call in demand.tokens) if decodes else NOTHING
    if demand.is_loop:  # its first step shares the cause of the others
        of_prompt, of_tokens = NOTHING, summed((of_prompt, of_tokens))
    is_divided = cut.prefill != cut.decode and bool(demand.tokens)
    crossing = demand.prompt_cache_bytes if is_divided or demand.is_loop else 0
    calls = prefills + decodes
    link_bytes = crossing + prefills * demand.prompt_link_bytes + decodes * demand.token_link_bytes
    parts = {
        OF_HOST: host.answer_us_of(cut, HOST),
        OF_PROMPTS: of_prompt,
        OF_TOKENS: of_tokens,
        LAUNCH: combine(lambda us: us * calls, board.launch_us),
        LINK: combine(lambda rate: link_bytes / rate * 1e6, board.link.bytes_per_s),
    }
    first = host.prompt_us if cut.prefill == HOST else summed((first_us, board.launch_us))
    token_bytes = demand.token_link_bytes if cut.decode == CARD else 0
    draws = Draws(TERMS)  # the host's times are one cause on both sides
    new: Values = sum((draws.of(term, cases) for term, cases in parts.items()), np.zeros(DRAWS))
    odds = odds_of(draws.of(OF_HOST, host.answer_us), new, draws, TERMS)
    return CutAnswer(cut, parts, first, link_bytes, token_bytes, odds)
