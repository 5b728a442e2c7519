"""Which tests run: with --peers (scripts/test --peers) those marked ``peer``, else all others; with
--processes (scripts/test --loaded) not those whose ranks are all simulated: how these take turns is
drawn from a seed, whatever else the machine does."""

from __future__ import annotations

SIMULATES = {
    "simulate",
    "on_ranks",
    "run_on",
    "run_tasks",
    "simulate_workers",
    "try_kills",
    "try_all",
}
STARTS = {
    *("launch", "fork_ranks", "run_group", "run_ranks", "run_workers", "group_outcomes"),
    *("dtrun", "subprocess", "fork"),
}


def pytest_addoption(parser):
    parser.addoption(
        "--peers",
        action="store_true",
        help="run the tests that compare with PyTorch and safetensors, and no others",
    )
    parser.addoption(
        "--processes",
        action="store_true",
        help="leave out the tests all of whose ranks are simulated in one process",
    )


def only_simulates(item):
    """Whether the test starts no process: by its parameters, or by the names that it and the
    functions of its file that it names go by."""
    parameters = item.callspec.id.split("-") if hasattr(item, "callspec") else []
    if "sim" in parameters:
        return True
    around = vars(item.module)
    methods = [] if item.cls is None else vars(item.cls).values()
    names = set()
    waiting = [part.__code__ for part in (item.function, *methods) if hasattr(part, "__code__")]
    while waiting:
        code = waiting.pop()
        new = set(code.co_names) - names
        names |= new
        waiting += [part for part in code.co_consts if hasattr(part, "co_names")]
        waiting += [around[n].__code__ for n in new if hasattr(around.get(n), "__code__")]
    if "os" not in names:
        names.discard("fork")  # of an RRef
    return bool(names & SIMULATES) and not names & STARTS


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--peers")
    left_out = [item for item in items if (item.get_closest_marker("peer") is None) == wanted]
    if config.getoption("--processes"):
        left_out += [item for item in items if only_simulates(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
