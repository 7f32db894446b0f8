"""Amdahl's law with what offloading adds, its points of break-even, and its form for a chain of measured stages.

Amdahl, AFIPS 1967: a part f of the total, made S_k times faster, gives S = 1 / ((1 - f) + f / S_k). Overheads stand in
the denominator as fractions of the former total; time that host and card hide by working at once is a negative one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def total_speedup(accelerated_fraction: float, kernel_speedup: float, overhead_fraction: float = 0.0) -> float:
    """1 / ((1 - f) + f / S_k + o): below 1 where offloading makes the whole slower.

    Args:
        accelerated_fraction: f, the part of the former total that moves, 0 to 1.
        kernel_speedup: S_k, how much faster that part becomes.
        overhead_fraction: o, what is added less what is hidden, as a fraction of the former total.
    """
    return 1.0 / ((1.0 - accelerated_fraction) + accelerated_fraction / kernel_speedup + overhead_fraction)


def break_even_kernel_speedup(accelerated_fraction: float, overhead_fraction: float) -> float | None:
    """The S_k at which the total speedup is 1: f / (f - o).

    Returns:
        None where the overhead alone costs as much as the part that moves: no kernel is fast enough.
    """
    if overhead_fraction >= accelerated_fraction:
        return None
    return accelerated_fraction / (accelerated_fraction - overhead_fraction)


def break_even_batch(host_us: float, finish_us: float, without_launch_us: float) -> int | None:
    """The smallest batch at which one launch per call for the whole batch makes the total speedup at least 1.

    B inferences take B·H on the host and B·F₀ + L with the card, where L = F - F₀ is what launches add to the finish:
    B >= L / (H - F₀).

    Args:
        host_us: H, one inference on the host alone.
        finish_us: F, one inference with the card.
        without_launch_us: F₀, the same if launches were free.

    Returns:
        None where even free launches do not pay.
    """
    if finish_us <= host_us:
        return 1
    saved_us = host_us - without_launch_us
    return max(1, math.ceil((finish_us - without_launch_us) / saved_us - 1e-9)) if saved_us > 0 else None


def break_even_launch_us(
    host_us: float, finish_us: float, without_launch_us: float, launch_us: float, launch_count: int
) -> float | None:
    """The cost of one launch at which the total speedup is 1.

    The finish is a convex function of that cost, with a slope of at most one launch per call. Below the present cost
    its chord is followed, above it the steepest slope, so the answer is exact where nothing overlaps with a launch,
    and too small, never too large, elsewhere.

    Args:
        host_us: one inference on the host alone.
        finish_us: one inference with the card.
        without_launch_us: the same if launches were free.
        launch_us: all launches of one inference.
        launch_count: launches of one inference.

    Returns:
        None where there is no call, or where even free launches do not pay.
    """
    if not launch_count or without_launch_us > host_us:
        return None
    present_us = launch_us / launch_count
    if finish_us <= host_us:
        return present_us + (host_us - finish_us) / launch_count
    return present_us * (host_us - without_launch_us) / (finish_us - without_launch_us)


def payback_count(one_off_us: float, host_us: float, finish_us: float) -> int | None:
    """After how many inferences a cost that is paid once has been saved; None where an inference saves nothing."""
    if finish_us >= host_us:
        return None
    return math.ceil(one_off_us / (host_us - finish_us) - 1e-9)


def frames_per_second(stages_ms: Sequence[float]) -> float:
    """Stages that run one after the other, one frame at a time: 1000 / Σ ms."""
    return 1e3 / sum(stages_ms)


def predicted_frames_per_second(
    frames_per_second_before: float, stages_before_ms: Sequence[float], stage: int, stage_after_ms: float
) -> float:
    """The frame rate once one stage has another time and nothing else changes.

    f is the stage's share of the sum of all stages and S_k its speedup; the measured rate takes the total speedup, so
    that a frame's time outside the stages is taken to shrink with them.

    Args:
        frames_per_second_before: measured, with all stages as they were.
        stages_before_ms: times of the stages.
        stage: which of them changes, counted from 0.
        stage_after_ms: its new time.
    """
    stage_ms = stages_before_ms[stage]
    return frames_per_second_before * total_speedup(stage_ms / sum(stages_before_ms), stage_ms / stage_after_ms)
