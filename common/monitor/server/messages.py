"""The messages of the API, checked as they come in and declared as they go out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from common.metrics.ingest import MOST_DURATIONS, MOST_FAILED, MOST_FIGURES, MOST_NAME, MOST_NODES
from common.monitor.figures.figure_names import KNOWN_PATTERN

_DURATION_US = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_KEY = Annotated[str, Field(pattern=KNOWN_PATTERN)]
_NO_OTHERS: Any = {"additionalProperties": False}
_CELL = Annotated[list[float], Field(min_length=2, max_length=2)]
_POINT = Annotated[list[int | dict[str, float]], Field(min_length=3, max_length=3)]
_VALUE = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]


class NodeTime(BaseModel):
    node: str = Field(max_length=300, description="name of the executed node")
    op_type: str = Field(default="", max_length=100, description="its operator")
    share: float = Field(ge=0, le=1, description="share in the time of all nodes, without the time of nodes inside it")


class Ingested(BaseModel):
    """Runs of another process since its last message, and its gauges of now; see :mod:`common.metrics.ingest`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "model": "resnet50-fp32.onnx",
                    "durations_us": [48211.5, 47960.2],
                    "failed_run_count": 0,
                    "figures": {"queue_depth_count": 3, "batch_size_count": 4, "offered_runs_per_s": 25},
                }
            ]
        },
    )
    model: str = Field(default="", max_length=MOST_NAME, description="what the page shows as the name")
    durations_us: list[_DURATION_US] = Field(default=[], max_length=MOST_DURATIONS, description="latency of each run")
    failed_run_count: int = Field(default=0, ge=0, le=MOST_FAILED, description="runs that failed")
    figures: dict[_KEY, _VALUE] = Field(
        default={}, max_length=MOST_FIGURES, description="known figures, by name", json_schema_extra=_NO_OTHERS
    )
    nodes: list[NodeTime] = Field(
        default=[], max_length=MOST_NODES, description="in place of those of earlier messages"
    )


class Accepted(BaseModel):
    """The reception of posted runs."""

    run_count: int = Field(description="runs since the start, of all messages")


class Health(BaseModel):
    status: str = Field(description="ok, waiting (no run yet) or failing")
    problem: str = Field(description="what is wrong, in a line; empty while all is well")
    uptime_s: float


class Tick(BaseModel):
    tick: int = Field(description="number of the tick; a client that misses one sees a gap")
    time_s: float = Field(description="Unix time")
    model: str
    is_ready: bool = Field(description="whether runs have begun")
    problem: str = Field(description="why nothing runs, or why nothing is kept")
    figures: dict[str, float | None] = Field(description="figures by name; null is unknown")
    cells: list[_CELL] = Field(description="histogram of the window: lower end in µs, runs")
    alarms: list[str] = Field(description="names of the active alarms")
    slow_runs: list[str] = Field(description="the newest slow runs and what slowed them, a look every 10 s")


class Past(BaseModel):
    """Figures over time."""

    step_s: int = Field(description="length of a point")
    points: list[_POINT] = Field(
        description="Unix time of the begin, number of the run, figures of the runs of this step, means of gauges"
    )


class PastRun(BaseModel):
    """A time in which a dashboard ran."""

    run_id: int
    model: str
    started_s: float
    ended_s: float
    run_count: int
    settings: dict[str, Any]


class Refusal(BaseModel):
    """Why there is no answer."""

    detail: Any
