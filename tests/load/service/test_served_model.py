"""The FLOPs of calls against counts of the same model with its dimensions bound, and against products written out."""

import onnx
import pytest

from common.load.service.served_model import served_model
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model
from models.small.tiny import build_tiny_mlp
from models.transformers.bert import build_tiny_bert

SIZES = [(1, 5), (3, 7), (8, 31)]
WIDTH, FEED, LAYERS = 21, 37, 2


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "bert.onnx"
    onnx.save(build_tiny_bert(), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "length"), SIZES)
def test_flops_of_a_call_by_batch_and_length(bert, batch, length):
    flops = served_model(bert, {}, {}, {}, length_dim="seq", length=31).flops(batch, length)
    bound = load_model(bert, {"batch": batch, "seq": length}, {})
    counted = [count.figure("flops") for count in count_nodes(bound.graph, bound.bounds)]
    assert flops == sum(figure for figure in counted if figure is not None)
    # Vaswani et al. 2017: four products of the width with itself, two with the feed-forward net, two of the length.
    tokens = batch * length
    products = 2 * tokens * LAYERS * (4 * WIDTH**2 + 2 * WIDTH * FEED + 2 * length * WIDTH)
    assert products < flops < 1.6 * products


def test_flops_of_a_model_of_one_length_are_proportional_to_the_batch(tmp_path):
    onnx.save(build_tiny_mlp(), tmp_path / "mlp.onnx")
    flops = served_model(tmp_path / "mlp.onnx", {}, {}, {}).flops
    assert flops(7, 0) == pytest.approx(7 * flops(1, 0), rel=1e-9)
    assert flops(1, 0) > 0
