"""Files of clusters: the ones that are here, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from disttrain.distributed.planning.clusters import GIB, cluster_of, read_cluster
from disttrain.errors import ConfigError

FOLDER = Path(__file__).parents[3] / "configs" / "clusters"


def table():
    return {
        "name": "two", "nodes": 2, "per_node": 4,
        "device": {"name": "d", "memory_gib": 80, "memory_gb_s": 2000, "tflops": {"bf16": 300}},
        "local": {"gb_s": 300, "us": 3}, "network": {"gb_s": 25, "us": 8},
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda p: p.stem)
def test_files_can_be_read_and_say_where_their_numbers_are_from(path):
    machines = read_cluster(path)
    assert machines.name == path.stem and machines.devices == machines.nodes * machines.per_node
    head = path.read_text().split("name =")[0]
    assert ("data sheet" in head and "network" in head) or "links" in head


def test_the_five_kinds_of_devices_are_there():
    names = {read_cluster(p).device.name for p in FOLDER.glob("*.toml")}
    assert {"a100", "h100", "h200", "b200", "gh200"} <= names


def test_numbers_get_their_units():
    machines = cluster_of(table())
    assert machines.device.memory == 80 * GIB and machines.device.peaks == {"bf16": 3e14}
    assert (machines.local.bandwidth, machines.network.latency) == (300e9, 8e-6)
    assert machines.device.family == "d" and machines.island == 4


def test_so_many_devices_as_are_needed():
    machines = cluster_of(table())
    assert (machines.sized(4).nodes, machines.sized(32).nodes) == (1, 8)
    assert machines.sized(2).per_node == 2
    with pytest.raises(ConfigError, match="6 devices do not fill nodes of 4"):
        machines.sized(6)


@pytest.mark.parametrize(("change", "message"), [
    (lambda t: t.update(gpus=3), "unknown key 'gpus'"),
    (lambda t: t.pop("network"), "network is missing"),
    (lambda t: t.update(nodes=0), "nodes=0 given; needed is a whole number above 0"),
    (lambda t: t.update(nodes=1.5), "nodes=1.5 given"),
    (lambda t: t.update(per_node=True), "per_node=True given"),
    (lambda t: t["local"].update(gb_s=-1), "local: gb_s=-1 given; needed is a number above 0"),
    (lambda t: t["local"].update(us=float("nan")), "local: us=nan given"),
    (lambda t: t["device"].update(memory_gib="80"), "memory_gib='80' given"),
    (lambda t: t["device"].update(tflops={"fp8": 2}), "tflops.bf16 is missing"),
    (lambda t: t["device"]["tflops"].update(fp8=0), "tflops.fp8=0 given"),
    (lambda t: t.update(device=3), "device=3 given; needed is a table"),
    (lambda t: t.update(domain=6), "domain=6 given; needed is a multiple of per_node=4"),
])  # fmt: skip
def test_wrong_tables_are_told_by_key(change, message):
    wrong = table()
    change(wrong)
    with pytest.raises(ConfigError, match=message):
        cluster_of(wrong)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_cluster(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"name = \xff")
    with pytest.raises(ConfigError, match="is no TOML file"):
        read_cluster(bad)
