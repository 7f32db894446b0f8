"""Requests with images on real sessions: what they feed, in which stages, and which images are refused."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from common.graphs.graph import Graph, Tensor
from common.load.requests.load_record import Batch
from common.load.service import side_work as module
from common.load.service.hosts import HostedService
from common.load.service.sessions import Inputs, ServicePlan, SessionService, batched_inputs
from common.load.service.side_work import SideWork, TopClasses, image_requests
from common.messages.errors import UnusableValueError
from common.runtime.sessions.session import SessionSettings, create_session

COLOURS = [(51, 102, 255), (255, 51, 0), (0, 0, 0)]


def graph_of(*inputs):
    tensors = (Tensor(name, dtype, bits, shape, "input") for name, dtype, bits, shape in inputs)
    return Graph(nodes=(), tensors={one.name: one for one in tensors}, outputs=())


GRAPH = graph_of(("scale", "float32", 32, (3,)), ("image", "float32", 32, (1, 3, 5, 7)))


@pytest.fixture
def folder(tmp_path):
    for index, colour in enumerate(COLOURS):
        Image.new("RGB", (19, 11), colour).save(tmp_path / f"{index}.png")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "more.png").mkdir()
    return tmp_path


class Watched(SessionService):
    """A service that keeps what it fed."""

    def _assembled(self, worker, batch, rows):
        self.fed = super()._assembled(worker, batch, rows)
        return self.fed


@pytest.fixture
def session():
    """The mean of each channel, as three scores."""
    shape = ["N", 3, 5, 7]
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("Mul", ["means", "scale"], ["scores"]),
    ]
    inputs = [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("scale", TensorProto.FLOAT, [3]),
    ]
    output = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])]
    model = helper.make_model(
        helper.make_graph(nodes, "graph", inputs, output), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    return create_session(model.SerializeToString(), SessionSettings(1))


def test_requests_bring_the_images_in_turn(folder, session):
    work = SideWork(image_requests(folder, GRAPH, "unit"), TopClasses(2))
    sample = {"image": np.full((1, 3, 5, 7), np.nan, np.float32), "scale": np.ones(3, np.float32)}
    service = Watched([session], "model", Inputs([sample], batched_inputs(session), {}), side_work=work)
    assert service.stages == ("decode", "resize", "normalize", "assemble", "session_run", "postprocess")
    stages_ns = service.run(0, Batch(0, [4, 5, 6, 7], 4, 0))
    assert len(stages_ns) == len(service.stages) and min(stages_ns) > 0
    fed = service.fed["image"]
    assert fed.shape == (4, 3, 5, 7)
    for row, index in enumerate([1, 2, 0, 1]):
        for channel, value in enumerate(COLOURS[index]):
            assert fed[row, channel] == pytest.approx(value / 255, abs=1e-6)
    service.run(0, Batch(1, [8], 1, 0))
    assert service.fed["image"][0, :, 0, 0] == pytest.approx(0, abs=1e-6)


def test_plain_requests_have_no_stages_of_images(session):
    sample = {"image": np.zeros((1, 3, 5, 7), np.float32), "scale": np.ones(3, np.float32)}
    service = SessionService([session], "model", Inputs([sample], batched_inputs(session), {}))
    assert service.stages == ("assemble", "session_run")
    assert len(service.run(0, Batch(0, [0, 1], 2, 0))) == 2


def test_one_file_is_one_image(folder):
    found = image_requests(folder / "1.png", GRAPH, "imagenet")
    assert len(found.images) == 1 and found.input_name == "image"


def test_of_very_many_images_the_first_are_taken(folder, monkeypatch):
    monkeypatch.setattr(module, "MOST_IMAGES", 2)
    assert image_requests(folder, GRAPH, "unit").images == [(folder / f"{k}.png").read_bytes() for k in (0, 1)]


def refused(path, graph, normalization, problem):
    with pytest.raises(UnusableValueError, match=problem):
        image_requests(path, graph, normalization)


def test_what_is_no_image_is_refused(folder):
    (folder / "0.png").write_bytes((folder / "0.png").read_bytes()[:40])
    refused(folder, GRAPH, "unit", r"<images>: .*0\.png: cannot be decoded \(")
    refused(folder / "notes.txt", GRAPH, "unit", r"notes\.txt: holds no image; give a file or a folder of \.bmp")
    refused(folder / "more.png", GRAPH, "unit", r"more\.png: holds no image")
    refused(folder / "absent", GRAPH, "unit", r"absent: cannot be read \(No such file")


def test_a_model_without_an_image_input_is_refused(folder):
    graph = graph_of(("ids", "int64", 64, (1, 17)), ("mask", "float32", 32, (1, 1, 5, 7)))
    shapes = r"ids \[1, 17\], mask \[1, 1, 5, 7\]"
    refused(folder, graph, "unit", f"<images>: no input has the shape .* of an image: {shapes}")


def test_whole_numbers_are_not_normalized(folder):
    graph = graph_of(("image", "uint8", 8, (1, 5, 7, 3)))
    problem = r"imagenet, but input image takes whole numbers \(uint8\); give none"
    refused(folder, graph, "imagenet", f"<normalize>: {problem}")
    (values, *_), _ = image_requests(folder, graph, "none").prepared([0])
    assert values.dtype == np.uint8 and values[0, 4, 6].tolist() == list(COLOURS[0])


@pytest.mark.slow
def test_other_processes_prepare_the_images_and_answer_too(folder, tmp_path):
    """Also what they refuse comes back as it is."""
    path, form = tmp_path / "means.onnx", ["N", 3, 5, 7]
    nodes = [helper.make_node("ReduceMean", ["image"], ["scores"], axes=[2, 3], keepdims=0)]
    ends = (("image", form), ("scores", ["N", 3]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:])
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    sample = {"image": np.zeros((1, 3, 5, 7), np.float32)}
    images = image_requests(folder, graph_of(("image", "float32", 32, (1, 3, 5, 7))), "unit")
    plan = ServicePlan(path, [SessionSettings(1)], [sample], {}, side_work=SideWork(images, TopClasses(2)))
    service = HostedService([plan, replace(plan, side_work=SideWork(images, TopClasses(4)))])
    try:
        assert service.stages == ("decode", "resize", "normalize", "assemble", "session_run", "postprocess")
        stages_ns = service.run(0, Batch(0, [0, 1, 2], 3, 0))
        assert len(stages_ns) == len(service.stages) and min(stages_ns) > 0
        with pytest.raises(UnusableValueError, match=r"<top_k>: 4, but the model's first output is float32 of shape"):
            service.run(1, Batch(1, [0], 1, 0))
    finally:
        service.close()
