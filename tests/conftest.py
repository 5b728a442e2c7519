"""Which tests run: with --peers (scripts/test --peers) those marked ``peer``, else all others; with
--clusters (scripts/test --clusters) those marked ``cluster``, which are skipped, and told, without;
with --part one of the two halves that scripts/test runs at a time. The half "processes" has those
that start processes or threads, and runs beside busy processes. Those marked ``simulated`` are not
among them: how simulated ranks take turns is drawn from a seed, whatever else the machine does. A
test with that mark that starts a process fails. Those marked ``gpu`` are skipped, and told, where
no device is visible. README.md says what else tests need."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from disttrain import context, gpus
from disttrain.core import random
from support.claims import Claims
from support.little_garbage import only_what_the_file_makes
from support.skips import Skips

__all__ = ["double", "only_what_the_file_makes"]

# The folders of that half.
PROCESSES = ("comm", "rpc", "launcher", "distributed", "compat", "data", "record", "scripts")
WHOLE_FILE = "\npytestmark = pytest.mark.{}\n"  # (marks are written where the tests are)


def pytest_configure(config):
    config.pluginmanager.register(Skips())
    if folder := config.getoption("--claims"):
        config.pluginmanager.register(Claims(Path(folder), config.rootpath))


def pytest_addoption(parser):
    parser.addoption(
        "--peers",
        action="store_true",
        help="run the tests that compare with PyTorch and safetensors, and no others",
    )
    parser.addoption(
        "--clusters",
        action="store_true",
        help="run the tests on real clusters (Slurm, Ray, etcd ...), and no others",
    )
    parser.addoption(
        "--part",
        choices=("processes", "rest"),
        help="run the tests that start processes or threads, or all others",
    )
    parser.addoption(
        "--claims",
        metavar="FOLDER",
        help="run only files that no other run has claimed in this folder (scripts/lib/team.py)",
    )


def starts_processes(item):
    """Whether the test is of the half that starts processes or threads."""
    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    return folder in PROCESSES and item.get_closest_marker("simulated") is None


def pytest_ignore_collect(collection_path, config):
    """Files of which no test is asked for need not be imported: half of the tests of a run."""
    inside = collection_path.relative_to(config.rootpath / "tests").parts
    part, peers = config.getoption("--part"), config.getoption("--peers")
    if not inside or (part == "processes" and inside[0] not in PROCESSES):
        return bool(inside) or None
    if not (inside[-1].startswith("test_") and inside[-1].endswith(".py")):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if peers:
        return True if "mark.peer" not in text else None
    if WHOLE_FILE.format("peer") in text:
        return True
    if part == "processes":
        return True if WHOLE_FILE.format("simulated") in text else None
    others = part == "rest" and inside[0] in PROCESSES and "mark.simulated" not in text
    return True if others else None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """All that is collected lives to the end: looking through it on the way takes half the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--peers")
    _skip_without_devices([item for item in items if item.get_closest_marker("gpu")])
    part = config.getoption("--part")
    on_clusters = config.getoption("--clusters")
    if not on_clusters:
        why = pytest.mark.skip(reason="on a real cluster: scripts/test --clusters runs it")
        for item in items:
            if item.get_closest_marker("cluster"):
                item.add_marker(why)

    def runs(item):
        if (item.get_closest_marker("peer") is not None) != wanted:
            return False
        if on_clusters and item.get_closest_marker("cluster") is None:
            return False
        return part is None or starts_processes(item) == (part == "processes")

    chosen = {item: runs(item) for item in items}
    if not all(chosen.values()):
        config.hook.pytest_deselected(items=[item for item in items if not chosen[item]])
        items[:] = [item for item in items if chosen[item]]


def _skip_without_devices(items):
    """Devices are counted without starting CUDA, and only where a test asks for one."""
    if not items:
        return
    machine = gpus.ask()
    if not gpus.visible(machine.cards, os.environ.get("CUDA_VISIBLE_DEVICES")):
        why = pytest.mark.skip(reason=f"no GPU is visible here ({machine.problem or 'none'})")
        for item in items:
            item.add_marker(why)


# pytest's own; what the first endpoint of gRPC and the first handle of cuBLAS set for good.
CHANGES = ("PYTEST_CURRENT_TEST", "GRPC_VERBOSITY", "CUBLAS_WORKSPACE_CONFIG")


def _of_the_process():
    """What a test must not leave changed: others would run as another rank, or in another place."""
    here = context.current()
    return {
        "the directory": Path.cwd(),
        "the rank": (here.rank, here.world_size),
        "the environment": {k: v for k, v in os.environ.items() if k not in CHANGES},
        "another library's names": "torch" in sys.modules,
    }


def _difference(was, is_):
    if isinstance(was, dict):
        return ", ".join(sorted(k for k in was.keys() | is_.keys() if was.get(k) != is_.get(k)))
    return f"{was} -> {is_}"


@pytest.fixture(autouse=True)
def leaves_the_process_alone(request):
    """Fails a test after which the process is not what it was."""
    before = _of_the_process()
    yield
    after = _of_the_process()
    changed = [f"{name} ({_difference(was, after[name])})"
               for name, was in before.items() if after[name] != was]  # fmt: skip
    if changed and request.node.get_closest_marker("peer") is None:
        pytest.fail(f"the test has changed, for all that follow: {', '.join(changed)}")


@pytest.fixture(autouse=True)
def starts_from_the_same_numbers():
    """What a test draws does not depend on the run: a failure can be had again."""
    random.manual_seed(0)


def _start_nothing(*args, **kwargs):
    pytest.fail("the test is marked `simulated` and starts a process: take the mark away")


@pytest.fixture(autouse=True)
def starts_what_its_mark_says(request):
    """Fails a test that starts a process although its mark says that its ranks are simulated."""
    if request.node.get_closest_marker("simulated") is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fork", _start_nothing)
        patched.setattr(subprocess.Popen, "__init__", _start_nothing)
        yield


@pytest.fixture
def double():
    """A platform of two devices that are not there, offered as "cuda" (support/device_double)."""
    from standins.device_double.double import DoublePlatform

    from disttrain.backends.device import platform as devices

    made = DoublePlatform(2)
    before = devices.offer("cuda", lambda: made)
    yield made
    devices.offer("cuda", *before)
