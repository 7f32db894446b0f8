"""What an answer of a decoder asks of a card and of the host: its calls, its bytes, and the lengths that are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from common.fpga.decoding.answer import AnswerDemand, HostAnswer
from common.fpga.decoding.law import CallDemand
from common.fpga.decoding.plan import LengthDemand
from common.fpga.decoding.prompt import PromptPlan
from common.generation.decoder import CallSizes, Decoder, require_length, require_prompt
from common.generation.host_times import HostTimes
from common.generation.resident import Resident
from common.intervals import ThreePoint
from common.messages.errors import UnusableValueError
from common.table_rows import GenerationSummaryDocument

MOST_TOKENS = 100_000


def require_one_sequence(decoder: Decoder) -> None:
    """Refuse calls for several sequences: caches, links and odds of a plan are those of one.

    An UnusableValueError says how many there are.
    """
    if decoder.sequences != 1:
        problem = f"a call takes {decoder.sequences} sequences, and a plan is for one answer at a time"
        raise UnusableValueError("dim", problem, "give a batch of 1, also to <generation_summary>")


def answer_lengths(
    decoder: Decoder, measured: GenerationSummaryDocument, prompt: int | None, tokens: int | None
) -> tuple[int, int]:
    """Return the tokens of the prompt and of the answer: as given, or as they were measured.

    The first step of a loop of states counts as its prompt.

    Raises:
        UnusableValueError: no prompt was measured, the model takes none, there are too many tokens, or a buffer of the
            model has no room for them.
    """
    if decoder.tokens is None and prompt:
        raise UnusableValueError("prompt", "the model takes no tokens: its states have no prompt", "leave it out")
    prompt = 1 if decoder.tokens is None else prompt or measured["prompt_token_count"]
    if not prompt:
        raise UnusableValueError("prompt", "no prompt was measured", "give its length with <prompt>")
    tokens = tokens or measured["answer_token_count"]
    for quantity, length in (("prompt", prompt), ("tokens", tokens)):
        if length > MOST_TOKENS:
            raise UnusableValueError(quantity, f"{length} tokens", f"give at most {MOST_TOKENS:,}")
    require_prompt(decoder, prompt, "prompt")
    require_length(decoder, prompt + tokens - 1, "tokens")
    return prompt, tokens


def demands(
    decoder: Decoder,
    engines: Mapping[str, tuple[PromptPlan | None, str | None]],
    host: HostTimes,
    prompt: int,
    tokens: int,
) -> dict[str, tuple[AnswerDemand, Sequence[LengthDemand]]]:
    """Return what an answer asks of the card in each format of the weights, and a token at each shown length.

    ``engines`` are, by format, the prompt on an array, and the kernel of decode by name; None where the board has none.
    """
    residents = {name: Resident(decoder, name) for name in engines}
    return {
        name: (
            replace(answer_demand(residents[name], prompt, tokens), prompt_plan=plan, decode_engine=kernel),
            length_demands(residents[name], host, prompt, tokens),
        )
        for name, (plan, kernel) in engines.items()
    }


def answer_demand(resident: Resident, prompt: int, tokens: int) -> AnswerDemand:
    """Return what the prompt and each later token ask of the card."""
    decoder, first = resident.decoder, CallSizes(0, prompt)
    later = [CallSizes(past, 1) for past in range(prompt, prompt + tokens - 1)]
    return AnswerDemand(
        _call_demand(resident, first),
        [_call_demand(resident, call) for call in later],
        resident.weight_bytes + resident.cache_bytes([first, *later][-1]),
        resident.cache_bytes(first),
        resident.logit_bytes(),
        prompt if decoder.tokens else 0,
        # Of one token in the input of tokens, which a loop of states has not.
        input_bytes=decoder.at(decoder.tokens.size_bytes, CallSizes(0, 1)) or 0 if decoder.tokens else 0,
    )


def length_demands(resident: Resident, host: HostTimes, prompt: int, tokens: int) -> list[LengthDemand]:
    """Return what a token asks of the card after as many tokens as each shown length has."""
    return [
        LengthDemand(past, _call_demand(resident, call), resident.cache_bytes(call), host.token_us(past))
        for past in shown_lengths(prompt, tokens)
        for call in [CallSizes(past, 1)]
    ]


def shown_lengths(prompt: int, tokens: int) -> list[int]:
    """Return powers of two up to the end of the answer, the prompt and the end."""
    last = prompt + max(tokens - 2, 0)
    return sorted({2**power for power in range(last.bit_length()) if 2**power < last} | {prompt, last})


def answer_on_host(host: HostTimes, prompt: int, tokens: int) -> HostAnswer:
    """Return the times of an answer on the host; the fastest answer is the pessimistic case for the card."""
    later = sum(host.token_us(past) for past in range(prompt, prompt + tokens - 1))
    return HostAnswer(*(ThreePoint(us * host.fast, us, us * host.slow) for us in (host.prompt_us(prompt), later)))


def _call_demand(resident: Resident, call: CallSizes) -> CallDemand:
    one = resident.call(call)
    return CallDemand(one.macs, one.read_bytes, resident.rounds)
