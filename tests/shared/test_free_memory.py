"""Free memory from trees of files as the kernel writes them."""

import pytest

from common.process import free_memory

MIB = 2**20


def tree(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("line", "groups", "left"),
    [
        ("0::/", {"memory.max": "max"}, 900),
        ("0::/", {"memory.max": f"{500 * MIB}", "memory.current": f"{480 * MIB}"}, 20),
        # page cache that nobody used lately is free; the parent's limit counts as well
        (
            "0::/a/b",
            {
                "a/b/memory.max": f"{800 * MIB}",
                "a/b/memory.current": f"{480 * MIB}",
                "a/memory.max": f"{500 * MIB}",
                "a/memory.current": f"{480 * MIB}",
                "a/memory.stat": f"anon 7\ninactive_file {100 * MIB}\n",
            },
            120,
        ),
        (
            "4:memory:/a",
            {
                "memory/a/memory.limit_in_bytes": f"{500 * MIB}",
                "memory/a/memory.usage_in_bytes": f"{480 * MIB}",
                "memory/a/memory.stat": f"total_inactive_file {3 * MIB}\n",
            },
            23,
        ),
    ],
)
def test_free_memory_is_what_the_system_and_each_control_group_leave(tmp_path, line, groups, left):
    status = "Name:\tpython\nVmSize:\t7 kB\nVmData:\t7 kB\n"
    files = {"meminfo": f"MemAvailable:  {900 * 1024} kB\n", "self/cgroup": f"{line}\n", "self/status": status}
    proc = tree(tmp_path / "proc", files)
    assert free_memory.free_bytes(proc, tree(tmp_path / "cgroups", groups)) == left * MIB


def test_a_system_that_does_not_say_has_no_limit(tmp_path):
    assert free_memory.free_bytes(tmp_path, tmp_path) is None


def test_a_process_that_uses_more_than_its_limit_runs_on(monkeypatch):
    """A kernel that was started with ``ignore_rlimit_data`` warns and gives it."""
    seen = []
    monkeypatch.setattr(free_memory.resource, "getrlimit", lambda _: (7, 11))
    monkeypatch.setattr(free_memory.resource, "setrlimit", lambda _, limits: seen.append(limits))
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 0)
    monkeypatch.setattr(free_memory, "_fields", lambda _: {"VmData": 13})
    with free_memory.bounded_memory():
        pass
    assert seen == [(11, 11), (7, 11)]
