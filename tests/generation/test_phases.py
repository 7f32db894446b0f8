"""The phases of a decoder: counts of each part are closed forms, and their expressions are those over the length."""

from __future__ import annotations

import pytest

from common.generation.decoder import decoder_of, require_length
from common.generation.phases import DECODE, PREFILL, bound_point, model_parts, phase_rows, point_at
from common.messages.errors import UnusableValueError
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model
from models.__main__ import BUILDERS, save
from models.small.generative import HIDDEN, LAYERS, WINDOW
from models.transformers.decoder import TINY

BYTES = 4


def decoder(tmp_path, name, sizes=None):
    save(BUILDERS[name](), tmp_path / "m.onnx")
    return decoder_of(load_model(tmp_path / "m.onnx", {}, symbolic=True), sizes or {}, {})


def rows_of(found, *points, bound=()):
    rows = phase_rows(found, [point_at(*point) for point in points], bound)
    return {(row["generation_phase"], row["past_token_count"], row["model_part"]): row for row in rows}


KEYS = TINY.groups * TINY.head_size
LAYER = TINY.hidden * (2 * TINY.hidden + 2 * KEYS) + 3 * TINY.hidden * TINY.wide
SCORES = TINY.layers * TINY.heads * 2 * TINY.head_size  # MACs of one query and one key
HEAD = TINY.hidden * TINY.vocabulary


@pytest.mark.parametrize("name", ["tiny-decoder", "tiny-grouped-decoder"])
def test_macs_of_each_phase_and_part(tmp_path, name):
    rows = rows_of(decoder(tmp_path, name), (PREFILL, 11), (DECODE, 29))
    layers = TINY.layers * LAYER
    assert rows[PREFILL, 0, "layers"]["macs"] == 11 * layers + 11 * 11 * SCORES
    assert rows[DECODE, 29, "layers"]["macs"] == layers + 30 * SCORES
    assert rows[PREFILL, 0, "head"]["macs"] == 11 * HEAD
    assert rows[DECODE, 29, "head"]["macs"] == HEAD
    for phase, past in ((PREFILL, 0), (DECODE, 29)):
        parts = [row for key, row in rows.items() if key[:2] == (phase, past) and key[2] != "model"]
        for figure in ("macs", "flops", "weight_bytes", "bytes", "cache_bytes"):
            assert rows[phase, past, "model"][figure] == sum(row[figure] for row in parts)
    assert rows[DECODE, 29, "model"]["cache_bytes"] == 2 * TINY.layers * KEYS * 30 * BYTES
    assert rows[DECODE, 29, "head"]["weight_bytes"] == HEAD * BYTES


def test_expressions_are_over_the_length_of_the_phase(tmp_path):
    rows = rows_of(decoder(tmp_path, "tiny-decoder"), (PREFILL, 11), (DECODE, 29))
    each = TINY.layers * LAYER + HEAD
    prefill, decode = rows[PREFILL, 0, "model"], rows[DECODE, 29, "model"]
    assert prefill["phase_macs_expression"] == f"{SCORES}*seq**2 + {each}*seq"
    assert decode["phase_macs_expression"] == f"{SCORES}*past + {each + SCORES}"
    cache = 2 * TINY.layers * KEYS * BYTES
    assert decode["phase_cache_bytes_expression"] == f"{cache}*past + {cache}"
    assert prefill["dimensions"] == {"batch": 1, "seq": 11, "past": 0}


def test_a_row_states_the_sizes_that_are_not_bound_for_all(tmp_path):
    rows = rows_of(decoder(tmp_path, "tiny-decoder", {"batch": 3}), (DECODE, 5), bound={"batch"})
    assert rows[DECODE, 5, "model"]["dimensions"] == {"seq": 1, "past": 5}
    assert rows[DECODE, 5, "head"]["macs"] == 3 * HEAD


@pytest.mark.parametrize(
    ("sizes", "phase", "past", "room"),
    [
        ({"batch": 1, "sequence_length": 1, "past_sequence_length": 8, "total_sequence_length": 9}, DECODE, 8, None),
        ({"batch": 1, "sequence_length": 4, "past_sequence_length": 0, "total_sequence_length": 4}, PREFILL, 0, None),
        ({"batch": 1, "sequence_length": 4, "past_sequence_length": 8, "total_sequence_length": 12}, PREFILL, 8, None),
        ({"batch": 1, "sequence_length": 1, "past_sequence_length": 64, "total_sequence_length": 9}, DECODE, 8, 64),
    ],
)
def test_the_phase_of_bound_dimensions(tmp_path, sizes, phase, past, room):
    """A buffer of 64 keys of which 9 are valid is a decode after 8 tokens."""
    found = decoder(tmp_path, "tiny-grouped-decoder")
    point = bound_point(found, sizes)
    assert point is not None
    assert (point.phase, point.call.past, point.call.room) == (phase, past, room)
    assert bound_point(found, {"batch": 1}) is None


def test_a_buffer_is_written_by_the_new_tokens_alone(tmp_path):
    """The bytes at a bound buffer of 64 tokens are those of the nodes of the bound model, counted one by one."""
    found = decoder(tmp_path, "tiny-grouped-decoder")
    sizes = {"batch": 1, "sequence_length": 1, "past_sequence_length": 64, "total_sequence_length": 9}
    bound = load_model(tmp_path / "m.onnx", sizes)
    expected = sum(count.figure("bytes") for count in count_nodes(bound.graph, None))
    point = bound_point(found, sizes)
    rows = phase_rows(found, [point], sizes)
    assert [row["bytes"] for row in rows if row["model_part"] == "model"] == [expected]
    grown = rows_of(found, (DECODE, 8))[DECODE, 8, "model"]["bytes"]
    assert grown - expected == TINY.layers * 2 * KEYS * 8 * BYTES


def test_parts_by_their_place(tmp_path):
    parts = model_parts(decoder(tmp_path, "tiny-decoder"))
    assert [name for name, part in parts.items() if part == "embedding"] == ["/model/embed_tokens/Gather"]
    assert [name for name, part in parts.items() if part == "head"] == ["/lm_head/MatMul"]


def test_a_state_has_one_decode_for_all_lengths(tmp_path):
    rows = rows_of(decoder(tmp_path, "tiny-state-space"), (DECODE, 5), (DECODE, 500))
    assert {past for _, past, _ in rows} == {5}


def test_a_rolling_cache_holds_its_window(tmp_path):
    found = decoder(tmp_path, "tiny-rolling-decoder")
    assert {pair.kind for pair in found.pairs} == {"rolling"}
    rows = rows_of(found, (DECODE, 3), (DECODE, 10 * WINDOW))
    for past, held in ((3, 3), (10 * WINDOW, WINDOW)):
        of_keys = LAYERS * 2 * HIDDEN * (held + 1)
        assert rows[DECODE, past, "layers"]["macs"] == LAYERS * 4 * HIDDEN * HIDDEN + of_keys
        assert rows[DECODE, past, "model"]["cache_bytes"] == LAYERS * 2 * HIDDEN * min(held + 1, WINDOW) * BYTES


def test_a_loop_of_states_has_no_lengths(tmp_path):
    found = decoder(tmp_path, "tiny-action-expert", {"prefix": 9})
    assert (found.tokens, found.call_dimensions) == (None, ())
    assert {pair.past.name for pair in found.pairs} == {"actions", "time"}
    assert len(found.still) == 4


def test_a_length_beyond_a_buffer_is_refused(tmp_path):
    found = decoder(tmp_path, "tiny-grouped-decoder")
    with pytest.raises(UnusableValueError, match="take 65 tokens of cache, and a buffer has room for 64"):
        require_length(found, 65, "phase", 64)
