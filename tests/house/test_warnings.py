"""Whatever warns points to the line of the program, however deep in the package it is found out."""

import warnings
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.nn import functional as F
from support.ranks import run_ranks

PACKAGE = Path(dt.__file__).parent


def test_one_function_warns():
    """It looks for the program's line itself; a count of frames is wrong with the next wrapper."""
    found = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "warnings.warn(" in file.read_text(encoding="utf-8")
    ]
    assert found == ["trace.py"]


def compiled_rank():
    dist.init_process_group(rank=0, world_size=1)
    try:
        dt.compile(lambda x: x * dist.new_group().size())(dt.ones(1, 2))
    finally:
        dist.destroy_process_group()


def order_of_scheduler():
    optimizer = dt.optim.SGD([nn.Parameter(dt.ones(1))], lr=0.1)
    dt.optim.lr_scheduler.StepLR(optimizer, 1).step()


def by_an_old_mask():
    dt.ones(2)[dt.ones(2, dtype=dt.uint8)]


CALLS = {
    "compiled": compiled_rank,
    "scheduler": order_of_scheduler,
    "mask": by_an_old_mask,
    "softmax": lambda: F.softmax(dt.ones(2, 2)),
    "module": lambda: nn.Softmax()(dt.ones(2, 2)),
    "sequential": lambda: nn.Sequential(nn.Softmax())(dt.ones(2, 2)),
    "loss": lambda: F.mse_loss(dt.ones(2), dt.ones(2, 1)),
    "class": lambda: dt.no_grad()(type("Model", (), {})),
    "init": lambda: nn.init.kaiming_uniform_(dt.ones(0, 1)),
    "split": lambda: dt.data.random_split([1], [1, 0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_points_to_the_program(name):
    def body(_):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            CALLS[name]()
        return [w.filename for w in caught]

    (files,) = run_ranks(1, body)
    assert files and set(files) == {__file__}, files
