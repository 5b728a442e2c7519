"""Which kinds of devices there are: offered, looked for, made once, and taken back."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from standins.device_double.double import DoublePlatform

from disttrain.backends.device import platform as devices
from disttrain.errors import DeviceError


@pytest.fixture(autouse=True)
def nothing_offered(monkeypatch):
    """Tables of the test's own, for a kind that no program has."""
    for name in ("_makers", "_lookers", "_made", "_by_type"):
        monkeypatch.setattr(devices, name, {})
    monkeypatch.setattr(devices, "_first", [])


def kind_of(sort):
    """A platform whose arrays are of a class of its own."""
    base = DoublePlatform(2)
    base.kind, base.array_type = sort, type(f"Array{sort}", (), {})
    return base


def test_what_nobody_offers_is_not_there():
    with pytest.raises(DeviceError, match="device 'npu': there is none of that name"):
        devices.platform("npu")
    assert devices.present("npu") == (0, "device 'npu': there is none of that name")
    assert devices.made("npu") is None and devices.offered() == ()


def test_a_platform_is_made_once_when_it_is_first_used():
    calls = []

    def make():
        calls.append(1)
        return kind_of("npu")

    devices.offer("npu", make)
    assert devices.offered() == ("npu",) and devices.made("npu") is None and not calls
    found = devices.platform("npu")
    assert devices.platform("npu") is found is devices.made("npu") and calls == [1]
    assert devices.platform_of(found.array_type()) is found
    assert devices.platform_of(np.zeros(1)) is None


def test_threads_that_ask_at_once_get_one_platform():
    calls, got, barrier = [], [], threading.Barrier(4)

    def make():
        calls.append(1)
        return kind_of("npu")

    def ask():
        barrier.wait()
        got.append(devices.platform("npu"))

    devices.offer("npu", make)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert calls == [1] and len(set(map(id, got))) == 1


def test_another_offer_takes_the_place_of_the_first_and_gives_it_back():
    first, second = kind_of("npu"), kind_of("npu")
    before = devices.offer("npu", lambda: first, lambda: (2, ""))
    assert before == (None, None)
    devices.platform("npu")
    before = devices.offer("npu", lambda: second)
    assert devices.platform("npu") is second
    assert devices.platform_of(first.array_type()) is None
    devices.offer("npu", *before)
    assert devices.platform("npu") is first
    devices.offer("npu", None)
    assert devices.offered() == () and devices.platform_of(first.array_type()) is None


def test_looking_starts_nothing():
    def make():
        pytest.fail("started")

    devices.offer("npu", make, lambda: (3, ""))
    assert devices.present("npu") == (3, "")
    devices.offer("npu", make, lambda: (0, "no driver"))
    assert devices.present("npu") == (0, "no driver")


def test_where_looking_cannot_tell_it_is_tried():
    def make():
        raise DeviceError("no driver is here")

    devices.offer("npu", make, lambda: None)
    assert devices.present("npu") == (0, "no driver is here")
    devices.offer("npu", lambda: kind_of("npu"), lambda: None)
    assert devices.present("npu") == (2, "")
    devices._lookers["npu"] = lambda: pytest.fail("looked, though it is in use")
    assert devices.present("npu") == (2, "")


def test_a_platform_that_cannot_be_made_is_tried_again():
    tries = iter([DeviceError("busy"), None])

    def make():
        error = next(tries)
        if error is not None:
            raise error
        return kind_of("npu")

    devices.offer("npu", make)
    with pytest.raises(DeviceError, match="busy"):
        devices.platform("npu")
    assert devices.platform("npu").kind == "npu"


def test_what_is_loaded_before_the_first_platform_is_loaded_once():
    seen = []
    devices.before_first(lambda: seen.append("rules"))
    devices.offer("a", lambda: kind_of("a"))
    devices.offer("b", lambda: kind_of("b"))
    assert seen == []
    devices.platform("a"), devices.platform("b")
    assert seen == ["rules"]


def test_only_platforms_in_use_have_sides_and_modules():
    found = kind_of("npu")
    found.packages = ("numpu", "numpu_tools.linalg")
    devices.offer("npu", lambda: found)
    assert devices.sided() == [] and not devices.beneath("numpu")
    devices.platform("npu")
    assert devices.sided() == []
    found.sided = True
    assert devices.sided() == [found]
    assert devices.beneath("numpu") and devices.beneath("numpu.core.ufuncs")
    assert devices.beneath("numpu_tools.linalg.blas")
    assert not devices.beneath("numpu_tools") and not devices.beneath("numpulse")


def test_products_of_half_types_are_added_up_in_float32():
    class Host(DoublePlatform):
        def __init__(self):
            self.xp = np

    Host.__abstractmethods__ = frozenset()
    host, base = Host(), devices.Platform.matmul
    a = np.full((1, 4096), 1, np.float16)
    b = np.full((4096, 1), 1, np.float16)
    assert base(host, a, b).dtype == np.float16 and base(host, a, b) == 4096
    out = np.full((1, 1), 0.5, np.float32)
    assert base(host, a, b, out) is out and out == 4096
    base(host, a, b, out, add=True)
    assert out == 8192
    whole = np.array([[1.0, 2], [3, 4]])
    np.testing.assert_array_equal(base(host, whole, whole), [[7, 10], [15, 22]])
    target = np.ones((2, 2)).T
    base(host, whole, whole, target, add=True)
    np.testing.assert_array_equal(target, [[8, 11], [16, 23]])


def test_what_an_accelerator_has_not_says_so():
    plain = kind_of("npu")
    for ask in (
        lambda: devices.Platform.external_stream(plain, 1, 0),
        lambda: devices.Platform.limit_memory(plain, 0, 0.5),
        lambda: devices.Platform.graph(plain),
        lambda: devices.Platform.graph_pool(plain),
        lambda: devices.Platform.collectives(plain),
    ):
        with pytest.raises(DeviceError, match="npu: this accelerator has no"):
            ask()
    with pytest.raises(DeviceError, match=r"npu: there is no zeta on this device; use \.cpu"):
        devices.Platform.special(plain, "zeta")


def test_many_sets_are_launched_one_by_one_where_nothing_better_is_known():
    plain, seen = kind_of("npu"), []
    plain.launch = lambda kernel, args: seen.append((kernel, args))
    devices.Platform.launch_many(plain, "step", [(1,), (2,)])
    assert seen == [("step", (1,)), ("step", (2,))]
