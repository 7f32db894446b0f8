"""Generate text with a decoder as a server does, and time each token: the prompt at once, then a loop over its caches.

Reads   the model file.
Writes  generation.csv (every token: phase, time, MACs, bytes of weights and cache), generation_phases.csv (each phase
        at each length, with its shares of the roofs), generation_summary.json.

A decoder returns its caches with each token, and takes them back in the next call. 01 times one call of fixed sizes.
This script times the loop. It feeds the outputs back without a copy. The next token is the one with the largest logit.
A cache grows, or is one buffer (--cache-room). The prompt is random tokens of the vocabulary. The first answer is a
warm-up. Work and bytes are those of 02 at the length of each call. With --phase, each length is measured by itself:
prefill as one call per answer, decode as a loop that begins with caches of zeros of that length.

EXAMPLE of input (a decoder) and output (generation.csv), some columns:

    decoder.onnx: input_ids [batch,seq], past_key_values.0.key [batch,2,past,64] -> logits, present.0.key

    answer_index,token_index,generation_phase,past_token_count,new_token_count,token_us,weight_bytes,cache_bytes
    1,0,prefill,0,128,40514.2,101254144,393216
    1,1,decode,128,1,13904.7,101254144,396288

    python 26_generation.py --model decoder.onnx --prompt 128 --tokens 64
    python 26_generation.py --model decoder.onnx --phase prefill:128,512 decode:128,1024,4096
    python 26_generation.py --model decoder.onnx --cache-room 4096 --mem-bw 2.0e10    # one buffer for each cache
    python 26_generation.py --model rnn.onnx --cache h=h_next --dim frames=1500       # names that no exporter gives
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.cli import load_stage
from common.cli.flags.load_flags import telemetry_flags
from common.files.configuration import Section
from common.generation.decoder import Decoder, decoder_of
from common.generation.figures import HostRates, generation_rows, generation_summary, phase_figures
from common.generation.loop import AnswerPlan, GenerationPlan, drawn_prompt, generate, require_room
from common.generation.phases import PREFILL, WHOLE, work_by_part
from common.generation.streams.live import LiveTokens
from common.load.telemetry import posts_to
from common.messages.errors import PipelineError, UnusableValueError
from common.onnx_graph.load import load_model
from common.power.host_power import host_power
from common.power.processor_law import read_processor_law
from common.power.processors import HostFacts, read_processors
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS, create_session, given_settings
from common.sensors.other_work import OtherWork
from common.view.profile.generation_text import generation_report


def arguments() -> cli.Parser:
    parser = cli.Parser("26_generation.py", __doc__ or "")
    parser.shared("--model", **cli.DECODER)
    parser.shared("--dim")
    count = {"type": cli.positive_int, "metavar": "N"}
    parser.setting("--prompt", default=128, help="tokens of the prompt, without --phase", **count)
    parser.setting("--tokens", default=32, help="tokens of each answer", **count)
    parser.setting("--answers", default=4, help="answers to each prompt; the first of several is a warm-up", **count)
    parser.shared("--phase", "--cache")
    parser.setting("--cache-room", help="one buffer of N tokens for past and present (default: caches grow)", **count)
    rate = {"type": cli.positive_float}
    parser.setting("--peak-flops", metavar="FLOP/S", help="peak of the host; phases have their share of it", **rate)
    text = "memory bandwidth of the host; phases have their share of it"
    parser.setting("--mem-bw", metavar="BYTE/S", help=text, **rate)
    parser.shared("--avg-power-w", help="mean power, for the energy of a token (default: by the processor's name)")
    parser.shared("--threads")
    parser.shared("--optimization", choices=tuple(OPTIMIZATIONS), metavar=None)
    parser.shared("--run-timeout", "--seed")
    telemetry_flags(parser)
    return parser


def planned(given: cli.Settings, decoder: Decoder) -> GenerationPlan:
    """Return what is to be generated, which the caches must have room for."""
    if decoder.tokens is None:
        if given.phase:
            raise UnusableValueError("phase", "the model takes no tokens: its states have no length", "leave it out")
        return GenerationPlan([AnswerPlan([0], given.tokens)], given.answers)
    lengths = dict.fromkeys((phase, length) for phase, of_phase in given.phase for length in of_phase)
    answers = [
        AnswerPlan(drawn_prompt(decoder, length, given.seed, "phase"), 1)
        if phase == PREFILL
        else AnswerPlan(drawn_prompt(decoder, 1, given.seed), given.tokens, length)
        for phase, length in lengths
    ]
    usual = [] if answers else [AnswerPlan(drawn_prompt(decoder, given.prompt, given.seed), given.tokens)]
    plan = GenerationPlan([*answers, *usual], given.answers, given.cache_room)
    require_room(decoder, plan)
    return plan


def power_w(stage: cli.StageRun, threads: int) -> float | None:
    """Return the given power, or what the name of the processor says; None where it is unknown."""
    if stage.settings.avg_power_w:
        return float(stage.settings.avg_power_w)
    law = read_processor_law(Section.of_file(cli.ROOT / "configs/processors.yaml"))
    modelled = host_power(law, read_processors(), HostFacts.of(stage.record.host), threads)
    return modelled.average.likely if modelled else None


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given, path = stage.settings, cli.model_path(stage.settings.model)
        sizes = dict(given.dim)
        model = load_model(path, sizes, symbolic=True)
        stage.set_model(model.model_id, path.name, model.dimensions)
        decoder = decoder_of(model, sizes, dict(given.cache))
        plan = planned(given, decoder)
        options = given_settings({**given.values, "provider": "cpu"})
        with stage.writing() as transaction, limited_runs(given.run_timeout):
            session = create_session(path, options)
            with posts_to(*load_stage.post_of(given), path.name, stage.note) as follow, OtherWork() as other_work:
                follow(live := LiveTokens())
                listener, bar = live.heard if given.post else None, stage.progress_bar("answers")
                tokens, failure = generate(session, decoder, plan, given.seed, path, bar, listener)
            stage.note(*other_work.notes(options.threads))
            rows = generation_rows(tokens, decoder, work_by_part(decoder)[WHOLE], plan)
            rates = HostRates(given.peak_flops, given.mem_bw, power_w(stage, options.threads))
            phases = phase_figures(rows, plan, rates, decoder.sequences)
            summary = generation_summary(rows, phases, plan, options.threads)
            if failure:
                transaction.set_aside(f"failed after {len(tokens)} tokens ({failure.problem})")
            transaction.add_rows("generation", rows)
            transaction.add_rows("generation_phases", phases)
            transaction.add_document("generation_summary", summary)
        stage.show(generation_report(phases, summary))
    if failure:
        remedy = f"what was generated is in {transaction.targets}, marked incomplete"
        raise PipelineError(path, failure.problem, remedy)
    return 0


if __name__ == "__main__":
    cli.run(main)
