"""The cache of results: what it gives back, what it computes again, and how large it grows."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.space import nest_fronts
from common.design_space.mapping.space.layer_by_layer import exact
from common.design_space.results import cache as result_cache
from common.design_space.results.cache import FILE, ResultCache, key_of, remembered, text_of, value_of
from common.design_space.results.design_result import DesignResult
from common.workload.loop_nests import LoopNest
from tests.support.paths import CONFIGS

GEMMINI = load_hardware("gemmini", CONFIGS / "hardware")


@dataclass(frozen=True)
class Pair:
    left: object
    right: object


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.tuples(inner, inner)
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.frozensets(st.integers() | st.text(), max_size=3)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=12,
)


def kinds_of(value):
    """Return a value with the types of all its parts, so that 1, 1.0 and True are told apart."""
    if isinstance(value, Pair):
        return "pair", kinds_of(value.left), kinds_of(value.right)
    if isinstance(value, dict):
        return "dict", [(kinds_of(key), kinds_of(item)) for key, item in value.items()]
    if isinstance(value, tuple | list):
        return type(value).__name__, [kinds_of(item) for item in value]
    return type(value).__name__, value


@pytest.mark.slow
@given(VALUES)
def test_a_value_comes_back_from_its_text(value):
    assert kinds_of(value_of(text_of(value), (Pair,))) == kinds_of(value)


@pytest.mark.slow
@given(VALUES, VALUES)
def test_two_values_have_one_text_only_if_they_are_equal(one, other):
    assert (text_of(one) == text_of(other)) == (kinds_of(one) == kinds_of(other) and repr(one) == repr(other))


def test_the_order_in_a_set_does_not_matter():
    names = [f"tensor{index}" for index in range(50)]
    assert text_of(frozenset(names)) == text_of(frozenset(reversed(names)))


FOREIGN = ("", "{", '{"Pair":[1]}', '{"Other":[1,2]}', '{"map":[1]}', '{"a":[],"b":[]}', "[" * 9999)


@pytest.mark.parametrize("text", FOREIGN)
def test_a_foreign_text_is_no_value(text):
    with pytest.raises(ValueError):
        value_of(text, (Pair,))


def test_what_has_no_text_is_our_mistake():
    with pytest.raises(TypeError, match="object has no text"):
        text_of((1, object()))


def test_a_key_follows_from_everything_that_a_result_follows_from():
    nest = LoopNest(k=7, c=11)
    contents = [
        (nest, GEMMINI),
        (replace(nest, pad_p=1), GEMMINI),
        (nest, replace(GEMMINI, array=replace(GEMMINI.array, mac_pj=0.5))),
        (nest, GEMMINI.resized(capacity_kib={"scratchpad": 64})),
        (nest,),
        ((nest, GEMMINI),),
    ]
    assert len({key_of(*each) for each in contents}) == len(contents)
    assert key_of(nest, GEMMINI) == key_of(replace(nest), replace(GEMMINI))


# --- entries --------------------------------------------------------------------------------------------------------

DESIGN = DesignResult(
    {"design": "d", "chip_mm2": 0.1 + 0.2, "sizes": {"a": 1, "b": 2.0}, "x": None}, groups=[{"k": (1,)}]
)


def test_another_process_finds_what_was_put(tmp_path):
    ResultCache(tmp_path / "new" / "folder").put("key", DESIGN)
    found = ResultCache(tmp_path / "new" / "folder").get("key", (DesignResult,))
    assert found == DESIGN
    assert repr(found) == repr(DESIGN)
    assert ResultCache(tmp_path / "new" / "folder").get("other", (DesignResult,)) is None


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE results SET content = substr(content, 1, 40)",
        "UPDATE results SET content = replace(content, '1', '7')",
        "UPDATE results SET content = x'ff00fe'",
        "UPDATE results SET content = 5",
        "UPDATE results SET content = NULL",
        "UPDATE results SET checksum = 'abc'",
        "UPDATE results SET checksum = NULL",
        "DELETE FROM results",
        "DROP TABLE results",
    ],
)
def test_a_torn_or_foreign_entry_is_not_known(tmp_path, damage):
    ResultCache(tmp_path).put("key", DESIGN)
    with sqlite3.connect(tmp_path / FILE) as base:
        base.execute(damage)
    cache = ResultCache(tmp_path)
    assert cache.get("key", (DesignResult,)) is None
    cache.put("key", DESIGN)
    assert ResultCache(tmp_path).get("key", (DesignResult,)) == DESIGN
    assert cache.problem == ""


def other_table(path):
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE results (name TEXT)")


DAMAGED = {
    "text": lambda path: path.write_text("no database at all, " * 500),
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "zeros": lambda path: path.write_bytes(bytes(20_000)),
    "another's table": lambda path: (path.unlink(), other_table(path)),
    "torn pages": lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes([7]) * 40_000),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_file_that_is_no_database_is_replaced(tmp_path, damage):
    cache = ResultCache(tmp_path)
    for number in range(40):
        cache.put(f"key{number}", DESIGN)
    DAMAGED[damage](tmp_path / FILE)
    cache = ResultCache(tmp_path)
    assert cache.get("key7", (DesignResult,)) in (None, DESIGN)
    for _ in range(2):  # the first may meet the damage
        cache.put("key7", DESIGN)
    assert ResultCache(tmp_path).get("key7", (DesignResult,)) == DESIGN
    assert cache.problem == ""


@pytest.mark.parametrize("kind", ["file in the way", "folder in the way"])
def test_where_nothing_can_be_kept_results_are_computed(tmp_path, kind):
    if kind == "file in the way":
        (tmp_path / "a").write_text("")
        cache = ResultCache(tmp_path / "a" / "b")
    else:
        (tmp_path / FILE).mkdir()
        cache = ResultCache(tmp_path)
    cache.put("key", DESIGN)
    assert cache.get("key", (DesignResult,)) is None
    cache.trim(1)
    assert cache.problem
    double = remembered()(lambda number: 2 * number)
    with cache.in_use():
        assert double(21) == 42


def test_a_cache_is_no_larger_than_it_may_be_and_keeps_the_newest(tmp_path):
    cache = ResultCache(tmp_path)
    for number in range(400):
        cache.put(f"key{number}", "x" * 1000 + str(number))
    size = (tmp_path / FILE).stat().st_size
    cache.trim(size)
    assert cache.get("key0", ()) is not None
    cache.trim(size // 2)
    assert (tmp_path / FILE).stat().st_size <= size // 2
    assert cache.get("key0", ()) is None
    assert cache.get("key399", ()) is not None
    cache.trim(0)
    assert cache.get("key399", ()) is None
    assert cache.problem == ""


def test_results_of_other_code_are_dropped_first(tmp_path, monkeypatch):
    cache = ResultCache(tmp_path)
    cache.put("kept", "x" * 100_000)
    with monkeypatch.context() as patch:
        patch.setattr(result_cache, "code_version", lambda: "other")
        for number in range(20):
            cache.put(f"key{number}", "x" * 10_000)
    cache.trim(150_000)
    assert cache.get("kept", ()) is not None
    assert cache.get("key19", ()) is None


def test_several_writers_lose_nothing(tmp_path):
    def write(writer):
        cache = ResultCache(tmp_path)
        for number in range(50):
            cache.put(f"{writer}-{number}", (writer, number))
        return cache.problem

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4))) == [""] * 4
    cache = ResultCache(tmp_path)
    assert all(cache.get(f"{writer}-{number}", ()) == (writer, number) for writer in range(4) for number in range(50))


# --- layers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def spaces(monkeypatch):
    """The nests whose mappings were evaluated."""
    evaluated = []
    search = nest_fronts.MappingSpace.of

    def counting(nest, *others):
        evaluated.append(nest)
        return search(nest, *others)

    monkeypatch.setattr(nest_fronts.MappingSpace, "of", counting)
    return evaluated


def test_a_layer_that_several_models_have_costs_once(tmp_path, spaces):
    shared, first, second = LoopNest(k=8, c=6, p=10), LoopNest(k=4, c=4, p=7, r=3), LoopNest(k=9, c=2)
    plain = exact({"x": shared, "y": second}, GEMMINI)
    spaces.clear()
    with ResultCache(tmp_path).in_use():
        exact({"a": shared, "b": first, "c": shared}, GEMMINI)
        assert sorted(spaces, key=repr) == sorted([shared, first], key=repr)
        spaces.clear()
        again = exact({"x": shared, "y": second}, replace(GEMMINI, name="another", title="name"))
        assert spaces == [second]
        spaces.clear()
        exact({"x": shared}, GEMMINI.resized(capacity_kib={"scratchpad": 64}))
        assert spaces == [shared]
    assert again == plain
    spaces.clear()
    exact({"x": shared}, GEMMINI)  # no cache is in use
    assert spaces == [shared]
