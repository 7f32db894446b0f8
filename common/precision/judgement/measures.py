"""How far the outputs of a model in another number format are from those in float: noise, agreement, accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from common.runtime.inputs.values import Array

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Share:
    """A share of samples with its limits at 95 %."""

    value: float
    low: float
    high: float


def signal_to_noise_db(expected: Array, actual: Array) -> float | None:
    """Return the energy of an output over the energy of its error, in dB; infinite without an error.

    The signal-to-quantization-noise ratio is 10 log10(sum y^2 / sum (y - z)^2) (Jayant and Noll, Digital Coding of
    Waveforms, 1984, section 4.2).

    Args:
        expected: y, in float.
        actual: z, of the same shape.

    Returns:
        None where it is not defined: for values that are not finite, and for an error of an output of zeros.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        signal, error = expected.astype(np.float64).ravel(), (expected - actual.astype(np.float64)).ravel()
        energies = float(signal @ signal), float(error @ error)
    return ratio_db(*energies) if all(map(math.isfinite, energies)) else None


def ratio_db(signal: float, noise: float) -> float | None:
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else None


def noise_share(ratio_db: float) -> float:
    """Return the energy of the error over that of the signal."""
    return float(10 ** (-ratio_db / 10))


def agreement(expected: Array, actual: Array, classes: int = 1) -> list[float]:
    """Return for each sample whether the likeliest class in float is among the ``classes`` likeliest ones.

    Args:
        expected: scores in float, (samples, classes), or (samples, positions, classes), which gives the share of the
            positions for each sample.
        actual: scores in the other format. Where one of them is not finite, nothing agrees.
    """
    return accuracy(expected.argmax(-1), actual, classes)


def accuracy(labels: Array, scores: Array, classes: int = 1) -> list[float]:
    """Return for each sample whether its label is among the ``classes`` likeliest ones, as :func:`agreement` does."""
    highest = scores.argmax(-1)[..., None] if classes == 1 else np.argsort(-scores, -1, kind="stable")[..., :classes]
    is_among = (highest == labels[..., None]).any(-1) & np.isfinite(scores).all(-1)
    return [float(share) for share in is_among.reshape(len(scores), -1).mean(1)]


def limits(shares: Sequence[float]) -> Share:
    """Return the mean of shares with Wilson's limits at 95 %.

    Wilson 1927, JASA 22(158); Brown, Cai and DasGupta (Statistical Science 16(2), 2001) recommend it. A sample with
    several positions is one observation between 0 and 1. Its variance is at most p (1 - p), that of a yes or no, so the
    limits are too wide rather than too narrow. There is a share for each sample, at least one.
    """
    count, value = len(shares), math.fsum(shares) / len(shares)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    spread = z * math.sqrt(value * (1 - value) / count + (z / (2 * count)) ** 2)
    centre, scale = value + z * z / (2 * count), 1 + z * z / count
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return Share(value, min(max(low, 0.0), value), max(min(high, 1.0), value))
