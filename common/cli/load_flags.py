"""Flags of load tests, by subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.cli import flags
from common.cli.settings import Parser, Settings
from common.errors import CommandLineError

COUNT: dict[str, Any] = {"type": flags.positive_int, "metavar": "N"}
TIME: dict[str, Any] = {"type": flags.duration, "metavar": "T"}
SHARING = {  # what it says, and whether the first kind is the default; else that depends
    "workers": ("sessions in threads of one process, or each in a process", True),
    "pool": ("intra-op threads of each session, or of all together", True),
    "execution": ("nodes one after another, or independent ones at once", True),
    "spinning": ("idle threads spin while runs last, always or never (default: runs; a shared pool: always)", False),
    "affinity": ("threads on any processor, or each on one of its own", True),
}

NEEDS = {  # what has an effect only with another one, or with one of two
    "think": ("users",),
    "batch_pad": ("batch_max",),
    "normalize": ("images",),
    "budget": ("search",),
    "usd_per_hour": ("search",),
    "avg_power_w": ("search",),
    "p99_bound": ("search", "scenario"),
    "with_dim": ("with_model",),
    "with_rate": ("with_model",),
    "post_token": ("post",),
    "cluster": ("models",),
    "cluster_address": ("cluster",),
}
MADE = ("arrivals", "burst")  # what says how a schedule is made
REPLACES = {  # what leaves no effect to others
    "users": ("rate", *MADE),
    "replay": ("rate", "duration", "part", *MADE),
    "scenario": ("part", *MADE, "lengths", "length_dim", "buckets"),
    "with_model": ("part",),
    "search": ("rate", *MADE, "sessions", "batch_wait", "batch_preferred", "batch_pad"),
    "models": ("part", "with_model", "post"),
}


def request_flags(parser: Parser, kinds: Sequence[str]) -> None:
    """Add what says which requests come."""
    parser.setting("--rate", type=flags.positive_float, default=10.0, metavar="HZ", help="requests per second, mean")
    parser.setting("--arrivals", choices=kinds, default=kinds[0], help="how they come")
    parser.setting(
        "--burst", default="4,0.1,1", metavar="P,S,T", help="bursty: peak over mean rate, share, mean length"
    )
    parser.setting("--replay", type=flags.path, metavar="FILE", help="arrivals from a CSV file: a time in s, a length")
    parser.setting(
        "--lengths", metavar="D", help="lengths of requests: uniform:1,512, normal:128,40,512, lognormal:64,0.8,512"
    )
    parser.setting("--users", help="closed loop instead: so many users, who wait for each answer", **COUNT)
    parser.setting("--think", help="closed loop: time of a user between an answer and the next request", **TIME)
    parser.setting("--duration", default=10.0, help="time in which requests come", **TIME)
    parser.setting("--seed", type=flags.non_negative_int, default=0, metavar="N", help="seed of arrivals and inputs")


def payload_flags(parser: Parser, normalizations: Sequence[str]) -> None:
    """Add what requests bring and are answered, beside the model's run."""
    text = "each request brings an image of this folder, which is decoded, resized and normalized in its call"
    parser.setting("--images", type=flags.path, metavar="PATH", help=text)
    parser.setting(
        "--normalize", choices=normalizations, default=normalizations[0], help="how values of the images are scaled"
    )
    parser.setting("--top-k", help="answer with so many likeliest classes of the first output", **COUNT)


def batching_flags(parser: Parser) -> None:
    """Add what says how requests are batched."""
    parser.setting("--batch-max", help="largest batch (default: 1; of a search: 16)", **COUNT)
    parser.setting("--batch-wait", help="how long the oldest request waits for others (default: not at all)", **TIME)
    parser.setting("--batch-preferred", type=flags.sizes, default=(), metavar="N,…", help="sizes that are sent at once")
    text = "fill each batch up to the next preferred size, or the largest"
    parser.setting("--batch-pad", action="store_true", default=False, help=text)
    parser.setting("--buckets", type=flags.sizes, default=(), metavar="N,…", help="lengths that requests are padded to")
    parser.setting("--length-dim", metavar="NAME", help="dimension that is the length of a request, such as seq")
    parser.setting("--queue-max", help="waiting requests above which further ones are rejected", **COUNT)
    parser.setting("--timeout", help="longest wait of a request, and longest run of a batch", **TIME)


def concurrency_flags(parser: Parser, levels: Sequence[str], kinds: Mapping[str, Sequence[str]]) -> None:
    """Add what says how many sessions answer, and how they are set up.

    Args:
        parser: takes the flags.
        levels: of graph optimization.
        kinds: how sessions may share the host, by subject, the usual kind first.
    """
    parser.setting("--sessions", default=1, help="sessions, each with a worker of its own", **COUNT)
    parser.setting("--replicate", default=1, help="runs that share a session at a time", **COUNT)
    parser.setting("--threads", help="intra-op threads of each session (default: an equal share of all)", **COUNT)
    for name, (text, is_chosen) in SHARING.items():
        several: dict[str, Any] = {"type": flags.some_of(kinds[name]), "metavar": "|".join(kinds[name])}
        several["help"] = f"{text}; several: a search compares"
        parser.setting(f"--{name}", default=kinds[name][:1] if is_chosen else (), **several)
    text = "parallel execution: nodes at once (default: 2); several: a search compares"
    parser.setting("--inter-threads", type=flags.sizes, default=(), metavar="N,…", help=text)
    parser.setting("--provider", default="cpu", metavar="NAME", help="execution provider")
    parser.setting("--optimization", choices=levels, default="all", help="graph optimization level")


def search_flags(parser: Parser) -> None:
    """Add what a search is asked for."""
    parser.setting("--search", action="store_true", help="search batch, wait, sessions and threads within a bound")
    parser.setting("--p99-bound", default=0.05, help="bound of the search, and of LoadGen's server scenario", **TIME)
    parser.setting("--budget", default=60.0, help="time of the search", **TIME)
    parser.setting("--usd-per-hour", type=flags.positive_float, metavar="USD", help="price of this host, for the cost")
    parser.setting(
        "--avg-power-w", type=flags.positive_float, metavar="W", help="mean power, where no sensor measures it"
    )


def fleet_flags(parser: Parser, clusters: Sequence[str]) -> None:
    """Add what says which models are measured, and who does it."""
    text = "measure several models one after another, or each on a worker of a cluster"
    parser.setting("--models", type=flags.paths, default=(), metavar="FILE,…", help=text)
    parser.setting("--cluster", choices=clusters, help="measure them on a cluster that runs")
    text = "of the cluster (default: DASK_SCHEDULER_ADDRESS or RAY_ADDRESS)"
    parser.setting("--cluster-address", default="", metavar="ADDRESS", help=text)


def mode_flags(parser: Parser, scenarios: Sequence[str]) -> None:
    """Add what makes of a load test more than one run."""
    parser.setting("--scenario", choices=scenarios, help="MLPerf LoadGen sends the requests of this scenario")
    parser.setting("--part", default=60.0, help="a load of two such parts or more is measured part by part", **TIME)
    text = "load this model as well: each alone and both together, the same requests each time"
    parser.setting("--with-model", "--with", metavar="FILE", help=text)
    text = "size of a dynamic dimension of that model; repeatable"
    parser.setting("--with-dim", type=flags.binding, action="append", default=[], metavar="NAME=N", help=text)
    text = "requests per second to that model (default: as many)"
    parser.setting("--with-rate", type=flags.positive_float, metavar="HZ", help=text)
    parser.setting(
        "--provider-matrix", action="store_true", help="compare the outputs of every provider with the CPU's"
    )


def post_flags(parser: Parser) -> None:
    """Add what says where the figures are posted while the load lasts."""
    text = "post what happens to this dashboard ten times a second, such as http://127.0.0.1:8765"
    parser.setting("--post", metavar="URL", help=text)
    text = "its token (default: dashboard.token in the folder of the tables)"
    parser.setting("--post-token", type=flags.path, metavar="FILE", help=text)


def refuse_idle(settings: Settings) -> None:
    """Refuse a flag that would have no effect beside the others.

    Raises:
        CommandLineError: there is one.
    """
    values, given = settings.values, [name for name, origin in settings.origins.items() if origin == "flag"]
    for name in given:
        if name in NEEDS and not any(values[other] for other in NEEDS[name]):
            others = " or ".join(f"<{other}>" for other in NEEDS[name])
            raise CommandLineError(f"<{name}>", f"has no effect without {others}", "leave it out")
        if other := next((one for one, own in REPLACES.items() if name in own and values[one]), ""):
            raise CommandLineError(f"<{name}>", f"has no effect with <{other}>", "leave one of them out")
    if "burst" in given and values["arrivals"] != "bursty":
        raise CommandLineError("<burst>", f"has no effect on {values['arrivals']} arrivals", "give <arrivals> bursty")
    if "rate" in given and values["scenario"] not in (None, "server"):
        problem = f"has no effect on the scenario {values['scenario']}, which sends as fast as it is answered"
        raise CommandLineError("<rate>", problem, "leave it out")
