"""Show live what a model does: run it continuously, or show what another process posts, on a page and through an API.

Reads   the model file; host_ceilings.json for the roof, if it exists.
Writes  dashboard_summary.json at the end; meanwhile dashboard.sqlite (the history) and dashboard.token.

12 prints the address and opens no browser. The token is in the part after #, which a browser sends to no server. Ctrl-C
ends the server. It answers only this host. With --public NAME others can reach it, by TLS only.

EXAMPLE of input (a model) and output (the metrics for Prometheus), some lines:

    resnet50-fp32.onnx: input float32 [N,3,224,224]

    onnx_window_latency_seconds{quantile="0.5"} 0.0482
    onnx_throughput_runs_per_second 20.6
    onnx_cpu_utilization_ratio{domain="host"} 0.99

    python 12_dashboard.py --model resnet50-fp32.onnx
    python 12_dashboard.py --attach                                # show what others post to /api/ingest
    curl -H "Authorization: Bearer $(cat out/dashboard.token)" http://127.0.0.1:8765/api/metrics/current
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from common import cli
from common.files.configuration import Section
from common.measurements.meters import sampled_power
from common.metrics.ingest import TOKEN_FILE
from common.monitor.continuous import ContinuousRuns, LiveModel
from common.monitor.figures.alarms import AlarmWatch, read_alarms
from common.monitor.figures.feed import WINDOW_S
from common.monitor.figures.gauges import Conditions, Sensed
from common.monitor.history import History
from common.monitor.monitor import LiveSource, Monitor
from common.monitor.server import serving
from common.monitor.server.doors import Doors, Room, free_descriptors
from common.monitor.server.guard import Guard, read_token
from common.monitor.server.hub import Hub
from common.monitor.slow_runs import SlowRuns
from common.monitor.store import Store
from common.power.energy_model import read_energy_configuration

Prepare = Callable[[ContinuousRuns], LiveModel]
PORT = 8765
HISTORY = "dashboard.sqlite"


def arguments() -> cli.Parser:
    parser = cli.Parser("12_dashboard.py", __doc__ or "")
    add, file = parser.setting, {"type": cli.path, "metavar": "FILE"}
    parser.shared(*cli.MODEL)
    add("--attach", action="store_true", default=False, help="run no model: show what others post")
    add("--port", type=cli.non_negative_int, default=PORT, metavar="N", help="port; 0 picks a free one")
    parser.shared("--threads", "--provider", "--optimization", "--run-timeout", "--seed")
    parser.shared("--avg-power-w", "--usd-per-hour", "--ceilings")
    add("--alarms", default=cli.ROOT / "configs" / "dashboard.yaml", help="thresholds of the alarms", **file)
    add("--public", metavar="NAME", help="let others reach this host by this name; needs both files of TLS")
    add("--tls-cert", help="certificate chain, PEM", **file)
    add("--tls-key", help="private key of the certificate, PEM", **file)
    return parser


def certificate(settings: cli.Settings) -> serving.Certificate | None:
    return serving.certificate_of(settings.tls_cert, settings.tls_key, settings.public or "", settings.out / TOKEN_FILE)


def conditions(stage: cli.StageRun) -> Conditions:
    """Return what is known before the model is: ceilings, emissions, price."""
    settings, path = stage.settings, cli.ceilings_path(stage.settings)
    factors = read_energy_configuration(Section.of_file(cli.ROOT / "configs" / "energy.yaml")).factors
    known = Conditions(gco2e_per_kwh=factors.emissions_gco2e_per_kwh.likely, usd_per_hour=settings.usd_per_hour)
    if not path.is_file():
        stage.note("no roof is shown: <host_ceilings> measures the ceilings of this host")
        return known
    measured = stage.tables.document("host_ceilings", path)
    peak, bandwidth = measured["peak_flop_per_s"], measured["memory_bytes_per_s"]
    return replace(known, peak_flop_per_s=peak, memory_bytes_per_s=bandwidth)


def model_to_run(stage: cli.StageRun) -> Prepare:
    """Read the model before the server starts; what cannot be run is refused without an address."""
    from common.measurements.live_model import live_model, prepared  # the runtime: --attach starts without it

    given = cli.given_model(stage.settings)
    model = prepared(given.path, (given.sizes, given.configured), given.files, stage.settings.values)
    return partial(live_model, model, note=stage.note)


def run_limits(settings: cli.Settings) -> contextlib.AbstractContextManager[None]:
    if settings.attach:
        return contextlib.nullcontext()
    from common.runtime.sessions.limits import limited_runs

    return limited_runs(settings.run_timeout)


def serve_live(
    stage: cli.StageRun, prepare: Prepare | None, store: Store, token: str, watch: AlarmWatch, known: Conditions
) -> History:
    """Serve until Ctrl-C; return what was recorded."""
    settings, hub, tls = stage.settings, Hub(), certificate(stage.settings)
    name = "posted" if settings.attach else Path(settings.model).name
    bound = serving.listening(serving.EVERYWHERE if settings.public else serving.LOOPBACK, settings.port)
    port, scheme = bound.getsockname()[1], "https" if tls else "http"
    guard = Guard(token, serving.own_names(bound, settings.public or ""), scheme)
    doors, host = Doors(Room.within(free_descriptors())), settings.public or serving.LOOPBACK
    source = LiveSource(name)
    history = History(store, store.begin(name, time.time(), {"threads": settings.threads, "attach": settings.attach}))
    stage.show(f"{scheme}://{host}:{port}/#token={token}")  # what is behind # is sent to nobody
    runs = ContinuousRuns(source, prepare, slow := SlowRuns(source.feed))
    with run_limits(settings), runs, sampled_power(sensed := Sensed(), settings.avg_power_w, WINDOW_S) as power_w:
        derived = partial(runs.derived, known, power_w)
        with Monitor(source, history, watch, sensed.figures, derived, slow) as monitor:
            how: dict[str, Any] = {"is_attached": settings.attach, "certificate": tls, "on_ready": runs.begin}
            asyncio.run(serving.serve(bound, monitor, hub, store, guard, doors, **how))
    if source.problem:
        stage.note(source.problem)
    return history


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        serving.require_server()
        settings = stage.settings
        certificate(settings)
        watch, known = AlarmWatch(read_alarms(settings.alarms)), conditions(stage)
        prepare = None if settings.attach else model_to_run(stage)
        stage.end_of_checks()
        token = read_token(settings.out / TOKEN_FILE)
        with contextlib.closing(Store(settings.out / HISTORY)) as store:
            history = serve_live(stage, prepare, store, token, watch, known)
        with stage.writing() as transaction:
            transaction.add_document("dashboard_summary", history.summary())
    return 0


if __name__ == "__main__":
    cli.run(main)
