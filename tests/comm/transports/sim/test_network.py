"""The alpha-beta model: what each verb costs, by the formulas of the literature."""

from __future__ import annotations

import pytest

from disttrain.comm.transports.sim.network import (
    Link,
    Network,
    plans,
    rounds_of_tree,
    seconds_on,
    spread,
)
from disttrain.errors import ConfigError

LINK = Link(1e-3, 1e6)  # 1 ms, and 1 us a byte
MB = 1_000_000


@pytest.mark.parametrize("n", [2, 3, 4, 8, 13])
def test_rounds_and_bytes_of_each_algorithm(n: int) -> None:
    depth, part = rounds_of_tree(n), (n - 1) / n * MB
    assert 2 ** (depth - 1) < n <= 2**depth
    assert plans("all_reduce", n, MB) == {
        "ring": (2 * (n - 1), 2 * part),
        "doubling": (depth, depth * MB),
        "tree": (2 * depth, 2 * depth * MB),
        "direct": (2, 2 * part),
    }
    for verb in ("all_gather", "reduce_scatter", "gather", "scatter"):
        found = plans(verb, n, MB)
        assert (found["ring"], found["direct"]) == ((n - 1, part), (1, part))
        assert found["doubling"] == (depth, part)
        alone = verb in ("gather", "scatter")
        assert found["tree"] == ((depth, part) if alone else (2 * depth, part + depth * MB))
    for verb in ("broadcast", "reduce"):
        found = plans(verb, n, MB)
        assert found["tree"] == found["doubling"] == (depth, depth * MB)
        assert found["direct"] == (1, (n - 1) * MB)
        assert found["ring"] == (depth + n - 1, 2 * part)
    assert plans("all_to_all", n, MB)["direct"] == (1, part)
    assert plans("barrier", n, 0)["doubling"] == (depth, 0)


@pytest.mark.parametrize("n", [2, 3, 4, 8, 13])
def test_a_tree_takes_what_its_halves_take(n: int) -> None:
    def tree(verb: str, nbytes: float = MB) -> tuple[float, float]:
        return plans(verb, n, nbytes)["tree"]

    for verb, up, down in (
        ("all_reduce", tree("reduce"), tree("broadcast")),
        ("all_gather", tree("gather"), tree("broadcast")),
        ("reduce_scatter", tree("reduce"), tree("scatter")),
        ("all_to_all", tree("gather", n * MB), tree("scatter", n * MB)),
        ("barrier", (rounds_of_tree(n), 0), (rounds_of_tree(n), 0)),
    ):
        assert tree(verb) == pytest.approx((up[0] + down[0], up[1] + down[1])), verb


def test_alone_nothing_costs_anything() -> None:
    for verb in ("all_reduce", "broadcast", "barrier", "all_to_all", "close"):
        assert seconds_on(LINK, verb, 1, MB) == 0.0


def test_auto_doubles_for_small_and_takes_a_ring_for_large() -> None:
    for nbytes, best in ((8, "doubling"), (100 * MB, "ring")):
        costs = {a: seconds_on(LINK, "all_reduce", 16, nbytes, a) for a in ("doubling", "ring")}
        assert min(costs, key=lambda a: costs[a]) == best
        assert seconds_on(LINK, "all_reduce", 16, nbytes) == costs[best]


def test_a_link_without_limits_is_free_and_bandwidth_counts() -> None:
    assert Link().seconds(7, MB) == 0.0
    assert Link(0.0, 1e6).seconds(7, MB) == 1.0 and LINK.seconds(2, 500) == pytest.approx(0.0025)


def test_groups_on_several_hosts_pay_inside_and_between() -> None:
    hosts = spread(8, 2)
    assert hosts == (0, 0, 0, 0, 1, 1, 1, 1) and spread(5, 2) == (0, 0, 0, 1, 1)
    local, remote = Link(1e-6, 1e9), Link(1e-3, 1e6)
    net = Network(hosts, local, remote, "ring")
    inside = seconds_on(local, "all_reduce", 4, MB, "direct")
    assert net.seconds("all_reduce", range(4), MB) == inside
    between = seconds_on(remote, "all_reduce", 2, MB, "ring")
    assert net.seconds("all_reduce", range(8), MB) == inside + between
    assert net.seconds("all_reduce", [0, 4], MB) == between
    # what every rank has for every other one all goes through the host's link
    crossed = seconds_on(remote, "all_to_all", 2, 4 * MB, "ring")
    assert net.seconds("all_to_all", range(8), MB) == pytest.approx(
        seconds_on(local, "all_to_all", 4, MB, "direct") + crossed
    )
    assert net.link(0, 3) == local and net.link(3, 4) == remote and net.link(2, 2) == Link()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 <= hosts <= ranks"):
        spread(2, 3)
    with pytest.raises(ConfigError, match="algorithm='star'"):
        Network((0,), algorithm="star")
