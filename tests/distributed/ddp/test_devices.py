"""Where a wrapped module lies and where its inputs are moved: what ``device_ids`` may say."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributed.ddp.devices import input_device
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


def params(*places):
    return [dt.ones(1, device=p) for p in places]


def test_on_the_host_inputs_stay_where_they_are():
    for places in ((), ("cpu", "cpu"), ("meta",)):
        assert input_device(params(*places), None, None) is None
        assert input_device(params(*places), [0], 0) is None  # as scripts say it that run anywhere


def test_on_a_device_inputs_are_moved_where_the_program_names_it(double):
    one = params("cuda:1", "cuda:1")
    assert input_device(one, None, None) is None
    for given in (1, "cuda:1", dt.device("cuda:1")):
        assert input_device(one, [given], None) == dt.device("cuda:1")
    assert input_device(one, None, 1) is None and input_device(one, [], 1) is None


@pytest.mark.parametrize(
    ("places", "device_ids", "output", "told"),
    [
        (("cpu",), [0, 1], None, r"contain a single element, but \[0, 1\] was given"),
        (("cpu", "cuda:0"), None, None, r"same type of devices, .* locate in \['cpu', 'cuda'\]"),
        (("cuda:0", "cuda:1"), None, None, r"several devices of one rank \(cuda:0, cuda:1\)"),
        (("cuda:0", "cuda:1"), [0], None, "only work with single-device GPU modules"),
        (("cuda:0", "cuda:1"), None, 0, "only work with single-device GPU modules"),
        (("cuda:1",), [0], None, r"device_ids=\[0\] .* on cuda:1; move it there first: .*cuda:0"),
    ],
)
def test_what_cannot_be(double, places, device_ids, output, told):
    with pytest.raises(ConfigError, match=told):
        input_device(params(*places), device_ids, output)
