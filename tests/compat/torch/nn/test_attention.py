"""Ways of computing attention that a program allows: kept, told, and given back."""

from __future__ import annotations

import pytest

from disttrain.compat.torch.nn.attention import SDPBackend, Switches

pytestmark = pytest.mark.simulated


def test_every_way_can_be_asked_for_and_switched():
    switches = Switches()
    functions = switches.functions()
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        told = functions[f"{name}_sdp_enabled"]
        assert told()
        functions[f"enable_{name}_sdp"](False)
        functions[f"enable_{name}_sdp"](False)
        assert not told()
    functions["enable_math_sdp"](True)
    assert switches.allowed == {SDPBackend.MATH} and len(functions) == 8


def test_inside_a_block_only_what_is_named():
    switches = Switches()
    flash = switches.functions()["flash_sdp_enabled"]
    with switches.sdpa_kernel(SDPBackend.MATH):
        assert not flash()
        with switches.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
            assert flash()
        assert not flash()
    with pytest.raises(ZeroDivisionError), switches.sdpa_kernel([]):
        1 / 0
    assert flash() and len(switches.allowed) == 4


@pytest.mark.parametrize("wrong", ["math", [0], [SDPBackend.MATH, 1]])
def test_ways_are_named_by_their_class(wrong):
    with pytest.raises(AssertionError, match="must be an instance of SDPBackend"):
        with Switches().sdpa_kernel(wrong):
            pass


def test_numbers_are_pytorchs_and_programs_do_not_share_switches():
    assert [b.value for b in SDPBackend] == [-1, 0, 1, 2, 3, 4]
    one, two = Switches(), Switches()
    one.allow(SDPBackend.MATH, False)
    assert SDPBackend.MATH in two.allowed
    assert one.module().SDPBackend is SDPBackend
