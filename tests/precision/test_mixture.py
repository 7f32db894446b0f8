"""Mixtures: the knapsack against all sets of layers, and the sum of the noise against a run."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import onnx
import pytest

from common.precision.conversion.schemes import SCHEMES
from common.precision.judgement.evaluation import Bounds
from common.precision.judgement.samples import Samples
from common.precision.mixture import MovableLayer, chosen, mixtures, most_work, movable
from common.precision.study import layer_judgements, studied
from common.runtime.sessions.session import SessionSettings
from tests.support.models.trained_perceptron import clouds, perceptron

INT4 = next(scheme for scheme in SCHEMES if scheme.number_format == "int4")


@pytest.mark.parametrize("seed", range(4))
def test_no_other_set_of_layers_moves_more_work(seed):
    random = np.random.default_rng(seed)
    layers = [
        MovableLayer(f"{place}", int(random.integers(1, 1000)), float(random.random() ** 3)) for place in range(9)
    ]
    every = [*chain.from_iterable(combinations(layers, count) for count in range(10))]
    for bound in (1e-4, 0.05, 0.3, 1.0, 10.0):
        allowed = [part for part in every if sum(layer.noise for layer in part) <= bound]
        found = [layer for layer in layers if layer.node in most_work(layers, bound)]
        assert sum(layer.noise for layer in found) <= bound
        assert sum(layer.macs for layer in found) == max(sum(layer.macs for layer in part) for part in allowed)


def test_a_layer_with_little_work_moves_beside_one_with_much():
    """The solver stops within a millionth of the optimum of what it is given."""
    layers = [MovableLayer("most", 10**9, 0.5), MovableLayer("least", 40, 0.4), MovableLayer("none", 30, 0.45)]
    assert {*most_work(layers, 0.92)} == {"most", "least"}


def test_the_noise_of_layers_adds_up_and_the_run_decides(tmp_path):
    points, _ = clouds(300, seed=3)
    onnx.save(perceptron(), tmp_path / "given.onnx")
    samples = Samples([{"x": points}], 300, "given")
    study = studied(tmp_path / "given.onnx", tmp_path, samples, samples, SessionSettings(1), None)
    layers = layer_judgements(study, INT4, study.nodes, 60.0, lambda done, total: None)
    found = mixtures(study, INT4, movable(layers, {"first": 384, "second": 144}), 528, lambda done, total: None)
    assert {one.nodes for one in found} >= {("first", "second")}
    for one in found:
        assert one.predicted_db == pytest.approx(one.judgement.sqnr_db, abs=1.0)
    bound = Bounds(0.0, sqnr_db=found[0].judgement.sqnr_db - 0.01)
    assert chosen(found, bound) is max(
        (one for one in found if one.judgement.sqnr_db >= bound.sqnr_db), key=lambda one: one.macs_share
    )
    assert chosen(found, Bounds(0.0, sqnr_db=400.0)) is None


def test_the_samples_that_judge_take_no_part_in_the_choice_of_a_mixture(tmp_path):
    """With other samples that judge, the sets of layers and the chosen one are the same."""
    onnx.save(perceptron(), tmp_path / "given.onnx")
    choosing, picked, ratios = Samples([{"x": clouds(60, seed=3)[0]}], 60, "given"), [], []
    for place, scale in enumerate((1.0, 30.0)):
        judging = Samples([{"x": scale * clouds(80, seed=7)[0]}], 80, "given")
        (folder := tmp_path / f"{place}").mkdir()
        study = studied(tmp_path / "given.onnx", folder, choosing, judging, SessionSettings(1), None)
        layers = layer_judgements(study, INT4, study.nodes, 60.0, lambda done, total: None)
        found = mixtures(study, INT4, movable(layers, {"first": 384, "second": 144}), 528, lambda done, total: None)
        kept = chosen(found, Bounds(0.0, sqnr_db=found[0].choosing.sqnr_db - 0.01))
        picked.append((tuple(one.nodes for one in found), kept.nodes))
        ratios.append(kept.judgement.sqnr_db)
    assert picked[0] == picked[1]
    assert ratios[0] - ratios[1] > 3  # values beyond the calibrated ranges are clipped
