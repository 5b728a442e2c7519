"""Cores near a device, on made-up trees of sysfs."""

from __future__ import annotations

import os

import pytest

from disttrain.errors import LaunchError
from disttrain_launcher.plan.binding import as_ranges, bind, cores_of_ranks, from_ranges, read_host

BUSES = ["0000:1b:00.0", "0000:43:00.0", "0000:9c:00.0", "0000:df:00.0"]


def make_sysfs(root, node_of_device=(0, 0, 2, 3), local=None):
    """Two sockets of two nodes of four cores of two threads: cpu c and c + 16 are one core; two
    cores share a cache. Devices 0 and 1 are near node 0, 2 near node 2, 3 near node 3."""
    for node in range(4):
        low = node * 4
        write(
            root,
            f"devices/system/node/node{node}/cpulist",
            f"{low}-{low + 3},{low + 16}-{low + 19}",
        )
    for cpu in range(32):
        core = cpu % 16
        at = f"devices/system/cpu/cpu{cpu}"
        write(root, f"{at}/topology/physical_package_id", core // 8)
        write(root, f"{at}/topology/thread_siblings_list", f"{core},{core + 16}")
        pair = core // 2 * 2
        for index, level, kind, shared in (
            (0, 1, "Data", f"{core},{core + 16}"),
            (1, 1, "Instruction", f"{core},{core + 16}"),
            (3, 3, "Unified", f"{pair}-{pair + 1},{pair + 16}-{pair + 17}"),
        ):
            for name, value in (("level", level), ("type", kind), ("shared_cpu_list", shared)):
                write(root, f"{at}/cache/index{index}/{name}", value)
    for bus, node in zip(BUSES, node_of_device):
        write(root, f"bus/pci/devices/{bus}/numa_node", node)
        write(root, f"bus/pci/devices/{bus}/local_cpulist", local or "")
    return str(root)


def write(root, path, value):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{value}\n")


EVERY = set(range(32))


@pytest.mark.parametrize(
    "mode, expected",
    [
        ("node", ["0-3,16-19", "0-3,16-19", "8-11,24-27", "12-15,28-31"]),
        ("socket", ["0-7,16-23", "0-7,16-23", "8-15,24-31", "8-15,24-31"]),
        ("exclusive", ["0-1,16-17", "2-3,18-19", "8-11,24-27", "12-15,28-31"]),
        ("core-complex", ["0-1,16-17", "2-3,18-19", "8-9,24-25", "12-13,28-29"]),
    ],
)
def test_each_mode(tmp_path, mode, expected):
    host = read_host(BUSES, EVERY, make_sysfs(tmp_path))
    assert [as_ranges(c) for c in cores_of_ranks(mode, host, BUSES)] == expected


def test_only_what_the_process_may_use(tmp_path):
    host = read_host(BUSES, {0, 1, 2, 16, 8, 12}, make_sysfs(tmp_path))
    assert cores_of_ranks("node", host, BUSES) == [(0, 1, 2, 16), (0, 1, 2, 16), (8,), (12,)]
    assert cores_of_ranks("exclusive", host, BUSES)[:2] == [(0, 1, 16), (2,)]
    host = read_host(BUSES, {0}, make_sysfs(tmp_path))
    with pytest.raises(LaunchError, match=r"rank 2 belongs to NUMA node 2 .*9c.* may use 0"):
        cores_of_ranks("node", host, BUSES)
    with pytest.raises(
        LaunchError, match=r"2 ranks belong to NUMA node 0, which has 1 usable core"
    ):
        cores_of_ranks("exclusive", host, BUSES[:2])


def test_ranks_that_share_a_device_share_its_cores(tmp_path):
    host = read_host(BUSES[:1], EVERY, make_sysfs(tmp_path))
    four = cores_of_ranks("exclusive", host, BUSES[:1] * 4)
    assert four == [(0, 16), (1, 17), (2, 18), (3, 19)]


def test_without_devices_ranks_are_spread_over_the_nodes(tmp_path):
    host = read_host([], EVERY, make_sysfs(tmp_path))
    found = cores_of_ranks("node", host, [None] * 8)
    assert [cores[0] for cores in found] == [0, 0, 4, 4, 8, 8, 12, 12]


def test_a_kernel_that_does_not_know_the_node(tmp_path):
    root = make_sysfs(tmp_path, (-1, -1, -1, -1), local="8-11")
    assert set(read_host(BUSES, EVERY, root).near.values()) == {2}
    assert read_host(["0000:ff:00.0"], EVERY, root).near == {"0000:ff:00.0": 0}
    bare = read_host([], {0, 1}, str(tmp_path / "nothing"))
    assert cores_of_ranks("node", bare, [None]) == [(0, 1)]


def test_ranges_both_ways():
    for text, numbers in (("0-2,8", [0, 1, 2, 8]), ("", []), ("5", [5])):
        assert from_ranges(text) == numbers and as_ranges(numbers) == text


def test_binding_holds_for_what_is_started():
    reader, writer = os.pipe()
    cpu = max(os.sched_getaffinity(0))
    pid = os.fork()
    if pid == 0:
        bind([cpu])
        os.write(writer, repr(os.sched_getaffinity(0)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as f:
        assert f.read() == repr({cpu})
