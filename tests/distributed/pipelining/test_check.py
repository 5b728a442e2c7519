"""Plans run on paper: what is wrong, what the messages cost."""

from __future__ import annotations

import pytest

from disttrain.distributed.pipelining import plans
from disttrain.distributed.pipelining.actions import (
    plan_of,
)
from disttrain.distributed.pipelining.check import run_on_paper
from disttrain.errors import ConfigError


def test_messages_take_time() -> None:
    plan = plans.one_f_one_b(2, 2)
    assert run_on_paper(plan, message=1.0).length > run_on_paper(plan).length


WRONG = {
    "0F1 is missing": [["0F0", "0B0", "0B1"]],
    "0F0 stands there 2 times": [["0F0", "0F0", "0B0"]],
    "needed is B, or I and W": [["0F0", "0I0"]],
    "has for the backward of micro-batch 0 nothing": [["0F0", "0F1", "0B1"]],
    "it comes to no end: rank 0 is at 0B0, which needs 0F0": [["0B0", "0F0"]],
    "rank 1 is at 1F0, which needs 0SEND_F0, 1RECV_F0": [
        ["0F0", "0B0"],
        ["1F0", "1B0", "1SEND_B0"],
    ],
    "rank 0 is at 0W0, which needs 0I0": [["0F0", "0W0", "0I0"]],
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_plans_say_what_is_wrong(message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_on_paper(plan_of(WRONG[message]))
