"""Load a decoder with requests, each for a stream of tokens, and time every token of every stream.

Reads   the model file.
Writes  stream_requests.csv (each request: time to first token, time per token), stream_tokens.csv (when each token
        came), stream_summary.json (percentiles with limits, tokens per second, goodput).

Requests come by a schedule that waits for nobody (open loop). --input-tokens and --output-tokens are the lengths of
prompts and answers: fixed or drawn from a distribution. --replay takes times and lengths from a trace. Each stream in
flight has caches of its own. With --batching static, streams are admitted together, and the next ones when all have
ended. With continuous, a stream is admitted between two tokens, as soon as fewer than --in-flight are in flight. With
--cache-room, each cache is one buffer with a row for each stream, and one call gives all streams a token. It needs an
operator that reads the valid length of each row (GroupQueryAttention). Without --cache-room, each stream has calls of
its own. In an overload, requests come faster than they are answered: times that include the wait have no percentiles.

The exit code is 4 if fewer than --min-goodput requests per second are answered within both bounds.

EXAMPLE of input (a decoder) and output (stream_requests.csv), some columns:

    decoder.onnx: input_ids [batch,seq], past_key_values.0.key [batch,2,past,64] -> logits, present.0.key

    request_index,input_token_count,output_token_count,time_to_first_token_us,time_per_output_token_us
    0,128,32,41210.4,13870.2

    python 27_token_streams.py --model decoder.onnx --rate 2 --input-tokens 128 --output-tokens 32
    python 27_token_streams.py --model decoder.onnx --output-tokens lognormal:64,0.8,512 --batching static
    python 27_token_streams.py --model decoder.onnx --cache-room 1024 --first-token-bound 500ms --inter-token-bound 50ms
    python 27_token_streams.py --model decoder.onnx --replay trace.csv      # time in s, prompt, answer
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from functools import partial

from common import cli
from common.cli import load_stage
from common.cli.flags.load_flags import goodput_flags, schedule_flags, telemetry_flags
from common.generation.decoder import decoder_of
from common.generation.streams.engine import POLICIES, StreamRequest, serve_after_warm_up
from common.generation.streams.figures import TokenBounds, broken_goodput, request_rows, stream_summary, token_rows
from common.generation.streams.live import LiveTokens, WatchedService
from common.generation.streams.requests import offered_per_s, require_streams, scheduled_requests, trace_requests
from common.generation.streams.service import service_of
from common.load.requests.demand import KINDS, Demand
from common.load.requests.schedules import Bursts
from common.load.settings import checked
from common.load.telemetry import posts_to
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS, create_session, given_settings
from common.view.load.load_text import stream_report

US_PER_S = 1e6


def arguments() -> cli.Parser:
    parser = cli.Parser("27_token_streams.py", __doc__ or "")
    parser.shared("--model", **cli.DECODER)
    parser.shared("--dim", "--cache")
    schedule_flags(parser, KINDS)
    text = "requests from a CSV file: time in s, prompt, answer"
    parser.setting("--replay", type=cli.path, metavar="FILE", help=text)
    lengths = "tokens: a number, uniform:1,512, normal:128,40,512 or lognormal:64,0.8,512"
    parser.setting("--input-tokens", default="128", metavar="D", help=f"length of each prompt in {lengths}")
    parser.setting("--output-tokens", default="32", metavar="D", help="length of each answer, in the same form")
    text = "admit streams in whole batches, or each as soon as there is room"
    parser.setting("--batching", choices=POLICIES, default="continuous", help=text)
    parser.setting("--in-flight", type=cli.positive_int, default=8, metavar="N", help="most streams at a time")
    text = "shared buffers, with a row of N tokens for each stream (default: a cache for each stream)"
    parser.setting("--cache-room", type=cli.positive_int, metavar="N", help=text)
    bound = {"type": cli.duration, "metavar": "T"}
    text = "goodput counts streams whose first token comes within this time"
    parser.setting("--first-token-bound", help=text, **bound)
    text = "goodput counts streams with at most this mean time between tokens"
    parser.setting("--inter-token-bound", help=text, **bound)
    goodput_flags(parser, has_bound=True)
    parser.shared("--threads")
    parser.shared("--optimization", choices=tuple(OPTIMIZATIONS), metavar=None)
    parser.shared("--run-timeout")
    telemetry_flags(parser)
    return parser


def requests_of(given: cli.Settings) -> list[StreamRequest]:
    """Return the requests of a trace, or of a schedule with lengths."""
    if given.replay:
        return trace_requests(given.replay)
    demand = Demand(given.rate, given.duration, given.seed, given.arrivals, bursts=Bursts.parse(given.burst))
    return scheduled_requests(demand, given.input_tokens, given.output_tokens)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given, path = stage.settings, cli.model_path(stage.settings.model)
        checked(given.values, given.given)
        sizes = dict(given.dim)
        model = load_model(path, sizes, symbolic=True)
        stage.set_model(model.model_id, path.name, model.dimensions)
        decoder = decoder_of(model, sizes, dict(given.cache))
        requests = requests_of(given)
        require_streams(decoder, requests, given.cache_room)
        options = given_settings({**given.values, "provider": "cpu"})
        bounds = TokenBounds(*(s and s * US_PER_S for s in (given.first_token_bound, given.inter_token_bound)))
        with stage.writing() as transaction, limited_runs(given.run_timeout):
            session = create_session(path, options)
            service = service_of(session, decoder, path, given.cache_room, given.in_flight, given.seed)
            progress = stage.progress_bar("requests")
            with posts_to(*load_stage.post_of(given), path.name, stage.note) as follow:
                follow(live := LiveTokens())
                watched = partial(WatchedService, service, live, requests) if given.post else None
                how = given.batching, given.in_flight
                streams, failure = serve_after_warm_up(requests, service, *how, progress, watched)
            setup: dict[str, object] = {
                "threads": options.threads,
                "batching_policy": given.batching,
                "most_in_flight_count": given.in_flight,
                "is_batched": bool(given.cache_room),
                "sent_count": len(requests),
            }
            summary = stream_summary(streams, offered_per_s(requests), bounds, setup)
            if failure:
                transaction.set_aside(f"failed after {len(streams)} requests ({failure.problem})")
            transaction.add_rows("stream_requests", request_rows(streams))
            transaction.add_rows("stream_tokens", token_rows(streams))
            transaction.add_document("stream_summary", summary)
            code = load_stage.exit_code(stage, broken_goodput(summary, given.min_goodput))
        stage.show(stream_report(summary))
    if failure:
        raise PipelineError(path, failure.problem, f"what was served is in {transaction.targets}, marked incomplete")
    return code


if __name__ == "__main__":
    cli.run(main)
