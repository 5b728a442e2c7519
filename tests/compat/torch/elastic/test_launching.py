"""Jobs on several nodes that programs start themselves, by PyTorch's names."""

import multiprocessing
import os

import pytest

from disttrain.compat.torch.elastic.errors import ChildFailedError
from disttrain.compat.torch.elastic.handlers import RendezvousTimeoutError
from disttrain.compat.torch.elastic.launching import LaunchConfig, elastic_launch
from support.ranks import free_port

FORK = multiprocessing.get_context("fork")


def where(add):
    names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
    return [int(os.environ[name]) + add for name in names]


def failing():
    if os.environ["RANK"] == "2":
        raise KeyError("of rank 2")
    signal_comes()


def signal_comes():
    import signal

    signal.pause()


def node(config, function, args, to):
    try:
        to.send(elastic_launch(config, function)(*args))
    except ChildFailedError as error:
        to.send(error.get_first_failure()[0])


def on_two(backend, function, *args):
    """What both nodes give."""
    endpoint = f"localhost:{free_port()}"
    pipes, started = [], []
    for rank in (0, 1):
        conf = {"rank": rank} if backend == "static" else {}
        config = LaunchConfig(
            2, 2, 2, rdzv_backend=backend, rdzv_endpoint=endpoint, run_id="two", max_restarts=0,
            rdzv_configs=conf,
        )  # fmt: skip
        mine, its = FORK.Pipe(duplex=False)
        started.append(FORK.Process(target=node, args=(config, function, args, its)))
        started[-1].start()
        its.close()
        pipes.append(mine)
    got = [pipe.recv() for pipe in pipes]
    for process in started:
        process.join()
    return got


@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_a_function_runs_on_the_workers_of_all_nodes(backend):
    got = on_two(backend, where, 10)
    if backend == "c10d":  # whoever comes first is the first one
        got.sort(key=min)
    assert got[0] == {0: [10, 14, 10, 10, 10], 1: [11, 14, 10, 11, 10]}
    assert got[1] == {2: [12, 14, 11, 10, 10], 3: [13, 14, 11, 11, 10]}


def test_a_failure_is_told_on_all_nodes():
    assert on_two("static", failing) == [2, 2]


def test_a_node_that_nobody_joins_says_so():
    config = LaunchConfig(
        2, 2, 1, rdzv_backend="c10d", rdzv_endpoint=f"localhost:{free_port()}", run_id="one",
        rdzv_configs={"join_timeout": 0.2},
    )  # fmt: skip
    with pytest.raises(RendezvousTimeoutError, match="1 of 2 nodes have come"):
        elastic_launch(config, where)(0)
