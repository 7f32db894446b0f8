"""The sizes of caches, read from a tree as Linux lays it out."""

import pytest

from common.profiling.ceilings.caches import (
    last_level_cache_bytes,
    members,
    private_cache_bytes,
    resident_array_bytes,
    stream_array_bytes,
)

MIB, KIB = 2**20, 2**10


def cache(root, cpu, index, **content):
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in content.items():
        (folder / name).write_text(f"{text}\n")


def test_the_last_level_is_the_highest_that_holds_data(tmp_path):
    cache(tmp_path, 0, 0, level=1, type="Data", size="48K", shared_cpu_list="0")
    cache(tmp_path, 0, 1, level=4, type="Instruction", size="64M", shared_cpu_list="0")
    cache(tmp_path, 0, 2, level=3, type="Unified", size="24M", shared_cpu_list="0-1")
    cache(tmp_path, 0, 3, level=9)  # cannot be read
    cache(tmp_path, 0, 4, level=8, type="Unified", size="big")
    cache(tmp_path, 1, 2, level=3, type="Unified", size="24M", shared_cpu_list="0-1")
    assert last_level_cache_bytes([0, 1, 7], 2, tmp_path) == 24 * MIB  # shared: once


def test_each_cache_that_a_thread_can_fill_counts(tmp_path):
    for cpu in range(3):
        cache(tmp_path, cpu, 0, level=2, type="Unified", size="1G" if cpu == 2 else "5M")
    assert last_level_cache_bytes([0, 1], 2, tmp_path) == 10 * MIB
    assert last_level_cache_bytes([0, 1], 1, tmp_path) == 5 * MIB
    assert last_level_cache_bytes([2], 1, tmp_path) == 1024 * MIB
    assert last_level_cache_bytes([5], 1, tmp_path) is None


def test_a_private_cache_is_divided_by_those_of_ours_that_share_it(tmp_path):
    for cpu in (0, 1, 5):
        cache(tmp_path, cpu, 0, level=1, type="Data", size="48K", shared_cpu_list=cpu)
        cache(tmp_path, cpu, 1, level=2, type="Unified", size="1234K", shared_cpu_list="0-1,5")
    cache(tmp_path, 7, 1, level=2, type="Unified", size="700K", shared_cpu_list="7")
    assert private_cache_bytes([0], tmp_path) == 1234 * KIB
    assert private_cache_bytes([0, 1], tmp_path) == 617 * KIB
    assert private_cache_bytes([0, 7], tmp_path) == 700 * KIB  # the least
    assert private_cache_bytes([3], tmp_path) is None


def test_a_private_cache_of_unknown_sharers_is_the_processors_own(tmp_path):
    cache(tmp_path, 0, 1, level=2, type="Unified", size="512K")
    assert private_cache_bytes([0, 1], tmp_path) == 512 * KIB


@pytest.mark.parametrize(("text", "found"), [("", set()), ("3", {3}), ("0-2,7", {0, 1, 2, 7}), ("0,2-3", {0, 2, 3})])
def test_a_list_of_processors(text, found):
    assert members(text) == found


def test_arrays_of_four_caches():
    assert stream_array_bytes(7 * MIB) == 28 * MIB
    assert stream_array_bytes(None) == 128 * MIB


def test_arrays_that_stay():
    # a fifth of 640 KiB is 128 KiB, for each of 3 threads; a twelfth of 36 MiB
    assert resident_array_bytes(640 * KIB, 36 * MIB, 3) == [3 * 128 * KIB, 3 * MIB]
    assert resident_array_bytes(640 * KIB, None, 1) == [128 * KIB]
    assert resident_array_bytes(None, None, 1) == [104832]  # 512 KiB / 5 = 104857.6, in lines of 64 bytes
