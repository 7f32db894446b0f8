"""Flags of the scripts of load tests, by subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.cli.flags import flag_types
from common.cli.flags.settings import Parser
from common.cli.flags.shared_flags import COUNT, TIME

SHARING = {  # what it says, and whether the first value is the default; else that depends on others
    "workers": ("sessions in threads of one process, or each in a process", True),
    "pool": ("intra-op threads of each session, or of all together", True),
    "execution": ("nodes one after another, or independent ones at once", True),
    "spinning": ("idle threads spin while runs last, always or never (default: runs; a shared pool: always)", False),
    "affinity": ("threads on any processor, or each on one of its own", True),
}


def schedule_flags(parser: Parser, processes: Sequence[str], duration_s: float = 10.0) -> None:
    """Add the times of the requests; the first of the possible arrival processes is the usual one."""
    text = "mean number of requests per second"
    parser.setting("--rate", type=flag_types.positive_float, default=10.0, metavar="HZ", help=text)
    parser.setting("--arrivals", choices=processes, default=processes[0], help="how requests arrive")
    text = "bursty: peak over mean rate, share of the time in bursts, mean length of a burst in s"
    parser.setting("--burst", default="4,0.1,1", metavar="P,S,T", help=text)
    duration_flags(parser, duration_s)


def course_flags(parser: Parser) -> None:
    """Add what a load does besides holding one rate: a profile, a file of arrivals, an end by precision."""
    text = "rates over time instead of one: 60s:10,30s:10-50,60s:50 holds 10/s, ramps up to 50/s, holds 50/s"
    parser.setting("--profile", type=flag_types.rate_steps, metavar="T:HZ,…", help=text)
    text = "arrivals from a CSV file: a time in s, a length"
    parser.setting("--replay", type=flag_types.path, metavar="FILE", help=text)
    text = 'end before --duration when the confidence limits of a figure are within this share of it: "p99 5%"'
    parser.setting("--until", metavar="GOAL", help=text)


def duration_flags(parser: Parser, duration_s: float = 10.0) -> None:
    """Add the time in which requests come, and the seed."""
    parser.setting("--duration", default=duration_s, help="time during which requests arrive", **TIME)
    seed_flag(parser)


def seed_flag(parser: Parser) -> None:
    parser.shared("--seed", help="seed of arrivals and inputs")


def user_flags(parser: Parser) -> None:
    """Add users, who wait for answers."""
    parser.setting("--users", help="number of users, each of whom waits for an answer (closed loop)", **COUNT)
    parser.setting("--think", help="closed loop: time of a user between an answer and the next request", **TIME)


def length_flags(parser: Parser) -> None:
    text = "lengths of requests: uniform:1,512, normal:128,40,512, lognormal:64,0.8,512"
    parser.setting("--lengths", metavar="D", help=text)
    parser.setting("--length-dim", metavar="NAME", help="dimension that is the length of a request, such as seq")
    text = "lengths that requests are padded to"
    parser.setting("--buckets", type=flag_types.sizes, default=(), metavar="N,…", help=text)


def payload_flags(parser: Parser, normalizations: Sequence[str]) -> None:
    """Add what requests bring and are answered, beside the model's run."""
    text = "folder of images: each request brings one, and its call decodes, resizes and normalizes it"
    parser.setting("--images", type=flag_types.path, metavar="PATH", help=text)
    text = "how values of the images are scaled"
    parser.setting("--normalize", choices=normalizations, default=normalizations[0], help=text)
    parser.setting("--top-k", help="number of likeliest classes of the first output in an answer", **COUNT)


def batching_flags(parser: Parser) -> None:
    """Add how batches are formed, and which requests may fail."""
    parser.setting("--batch-max", help="largest batch (default: 1)", **COUNT)
    parser.setting("--batch-wait", help="how long the oldest request waits for others (default: not at all)", **TIME)
    text = "batch sizes that do not wait for more requests"
    parser.setting("--batch-preferred", type=flag_types.sizes, default=(), metavar="N,…", help=text)
    text = "fill each batch up to the next preferred size, or the largest"
    parser.setting("--batch-pad", action="store_true", default=False, help=text)
    parser.setting("--queue-max", help="most waiting requests; further ones are rejected", **COUNT)
    parser.setting("--timeout", help="longest wait of a request, and longest run of a batch", **TIME)
    error_flag(parser)


def session_flags(parser: Parser, levels: Sequence[str], sharing: Mapping[str, Sequence[str]]) -> None:
    """Add how many sessions answer, at which levels of graph optimization, and how they may share the host."""
    parser.setting("--sessions", default=1, help="number of sessions, each with its own worker", **COUNT)
    text = "intra-op threads of each session (default: an equal share of all)"
    sharing_flags(parser, levels, sharing, text)


def sharing_flags(
    parser: Parser, levels: Sequence[str], sharing: Mapping[str, Sequence[str]], threads: str, more: str = ""
) -> None:
    """Add threads, and how sessions share the host; ``more`` is what several values of a flag do."""
    parser.setting("--replicate", default=1, help="most concurrent runs of one session", **COUNT)
    parser.shared("--threads", help=threads)
    for name, (text, is_chosen) in SHARING.items():
        ways, default = sharing[name], sharing[name][:1] if is_chosen else ()
        metavar, about = "|".join(ways), f"{text}{more}"
        parser.setting(f"--{name}", type=flag_types.some_of(ways), default=default, metavar=metavar, help=about)
    text = f"threads of parallel execution: one waits, the others compute nodes at once (default: 3){more}"
    parser.setting("--inter-threads", type=flag_types.sizes, default=(), metavar="N,…", help=text)
    parser.shared("--provider")
    parser.shared("--optimization", choices=levels, metavar=None)
    parser.shared("--run-timeout")


def bound_flags(parser: Parser) -> None:
    """Add the bound and the budget of a search."""
    parser.setting("--p99-bound", default=0.05, help="highest 99th percentile of the latency", **TIME)
    parser.setting("--budget", default=60.0, help="longest time of the search", **TIME)


def error_flag(parser: Parser) -> None:
    text = "largest share of requests that may fail, expire, be rejected or not be served in a valid load"
    parser.setting("--max-error-share", type=flag_types.fraction, default=0.001, metavar="SHARE", help=text)


def goodput_flags(parser: Parser, *, has_bound: bool = False) -> None:
    """Add the least goodput; ``has_bound``: another flag says within which time an answer counts."""
    text = "exit with code 4 if fewer requests per second are answered within the bound"
    parser.setting("--min-goodput", type=flag_types.positive_float, metavar="HZ", help=text)
    if not has_bound:
        text = "latency within which an answer counts as goodput (default: any)"
        parser.setting("--goodput-bound", help=text, **TIME)


def telemetry_flags(parser: Parser) -> None:
    """Add the dashboard that receives the load's figures while it lasts."""
    text = "send telemetry to this dashboard ten times a second, such as http://127.0.0.1:8765"
    parser.setting("--post", metavar="URL", help=text)
    text = "file of the dashboard's token (default: dashboard.token in the folder of the tables)"
    parser.setting("--post-token", type=flag_types.path, metavar="FILE", help=text)


def endpoint_flags(parser: Parser) -> None:
    """Add where an endpoint is, which of its models answers, and how it is called."""
    text = "address of the endpoint: http://, https://, grpc:// or grpcs://HOST:PORT"
    parser.setting("--endpoint", metavar="URL", help=text)
    parser.setting("--served-model", metavar="NAME", help="name of the model at the endpoint")
    text = "version of that model (default: the endpoint chooses)"
    parser.setting("--served-version", default="", metavar="V", help=text)
    text = "file of a bearer token, or of a scheme and its credentials"
    parser.setting("--endpoint-token", type=flag_types.path, metavar="FILE", help=text)
    text = "send values as bytes, or as text in the JSON; auto: bytes if the endpoint says that it takes them"
    parser.setting("--tensors", choices=("auto", "bytes", "text"), default="auto", metavar="auto|bytes|text", help=text)
    parser.setting("--connections", default=16, help="connections, each with at most one batch at a time", **COUNT)
