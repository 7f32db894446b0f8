"""What a run of a session takes: arrays as they are, unless numpy lacks a type."""

import pickle

import numpy as np
import onnxruntime as ort
import pytest

from common.runtime.inputs.values import operands
from models.__main__ import BUILDERS


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.bool_, object])
def test_arrays_that_another_process_sent_are_taken_as_they_are(kind):
    model = BUILDERS["tiny-mlp"]().SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {"x": np.zeros((2, 3), kind)}
    sent = pickle.loads(pickle.dumps(feeds))
    assert operands(session, feeds) is feeds
    assert operands(session, sent) is sent
