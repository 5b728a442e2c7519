"""Cases of a test class on the ranks of one MPI job, since mpiexec starts slowly.

Every rank of the job runs the same list of test functions in step; where one calls
``ranks.run(n, fn)``, ranks 0 .. n-1 call ``fn(group)`` on a new group, and all learn of all
outcomes. Rank 0 writes them down as they come, case by case. In the test run itself the functions
run once more, on what was written down:

    @pytest.fixture(scope="module")
    def mpi_job(request):
        with Job(request.session.items, __file__, num_ranks=4) as job:
            yield job

    @pytest.fixture
    def ranks(mpi_job, request):
        return mpi_job.replay(request.node)

Knows mpiexec, pytest's items and groups.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.ranks import Outcome, values

MPIEXEC = Path(sys.executable).with_name("mpiexec")
ROOT = Path(__file__).resolve().parents[2]
WAIT = 50.0  # seconds for the outcome of one case
GROUP_TIMEOUT = 20.0


def mpi_env() -> dict[str, str]:
    """The environment of a job: without what this process was told of a job of its own."""
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI_COMM", "MPI_LOCAL"))
    }
    env["PYTHONPATH"] = os.pathsep.join(
        map(str, (ROOT, ROOT / "tests", ROOT / "tests/comm/transports/mpi"))
    )
    env["OMP_NUM_THREADS"] = "1"
    return env


class Job:
    """One MPI job that runs the cases among ``items`` which ask for ``ranks``."""

    def __init__(self, items: list, file: str, num_ranks: int):
        mine = [i for i in items if str(i.path) == file and "ranks" in i.fixturenames]
        self._index = {item.nodeid: n for n, item in enumerate(mine)}
        self._cases = [_case(item) for item in mine]
        self._num_ranks = num_ranks

    def __enter__(self) -> Job:
        self._dir = TemporaryDirectory(prefix="mpi-job-")
        self._folder = Path(self._dir.name)
        (self._folder / "cases").write_bytes(pickle.dumps(self._cases))
        self._log = open(self._folder / "log", "w+b")  # noqa: SIM115
        command = [MPIEXEC, "-n", str(self._num_ranks), sys.executable, "-m", "support.mpi_job"]
        self._process = subprocess.Popen(
            [*command, self._folder], env=mpi_env(), stdout=self._log, stderr=self._log,
            start_new_session=True, cwd=ROOT,
        )  # fmt: skip
        return self

    def __exit__(self, *exc: Any) -> None:
        try:
            self._process.wait(0 if any(exc) else 10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()
        self._dir.cleanup()

    def replay(self, item: Any) -> Replay:
        """What ``ranks`` of ``item`` gave in the job."""
        path = self._folder / f"case-{self._index[item.nodeid]}"
        deadline = time.monotonic() + WAIT
        while not path.exists():
            if self._process.poll() is not None and not path.exists():
                raise AssertionError(f"the MPI job has ended before this case:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no outcome from the MPI job:\n{self._tail()}")
            time.sleep(0.002)
        return Replay(pickle.loads(path.read_bytes()))

    def _tail(self) -> str:
        self._log.flush()
        return (self._folder / "log").read_text(errors="replace")[-4000:]


def _case(item: Any) -> tuple:
    params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    return item.module.__name__, item.cls.__name__, item.originalname or item.name, params


class Replay:
    """The outcomes of a case, one list for each time that it has run ranks."""

    die = None

    def __init__(self, recorded: list[list[Outcome]]) -> None:
        self._recorded = iter(recorded)

    def outcomes(self, n: int, fn: Callable) -> list[Outcome]:
        found = next(self._recorded, None)
        assert found is not None, "the case has run ranks fewer times in the job than here"
        return found

    def run(self, n: int, fn: Callable) -> list:
        return values(self.outcomes(n, fn))


# -- in the job ------------------------------------------------------------------------------------


class InStep:
    """``ranks`` on one rank of the job."""

    die = None

    def __init__(self, station: Any, make: Callable[[int], Any]) -> None:
        self._station, self._make = station, make
        self._world = station.world.Dup()
        self._kept: list[Any] = []  # of groups that broke: MPI may still write to their memory
        self.recorded: list[list[Outcome]] = []

    def run(self, n: int, fn: Callable) -> list:
        return values(self.outcomes(n, fn))

    def outcomes(self, n: int, fn: Callable) -> list[Outcome]:
        mine = Outcome(self._world.rank, exitcode=0)
        if self._world.rank < n:
            self._call(fn, n, mine)
        self._meet()
        found = self._world.allgather(_picklable(mine))[:n]
        self._forget()
        self.recorded.append(found)
        return found

    def _call(self, fn: Callable, n: int, mine: Outcome) -> None:
        group = self._make(n)
        group.timeout = GROUP_TIMEOUT
        self._kept.append((group, fn))
        try:
            mine.value = fn(group)
        except BaseException as error:
            mine.error, mine.exitcode, mine.traceback = error, 1, traceback.format_exc()
            self._station.fail(mine.cause(), mine.traceback, range(n))
        mine.at = time.monotonic()

    def _forget(self) -> None:
        """Begin the next case as if nothing had happened."""
        self._station.flush(1.0)
        self._meet()
        self._station.begin_anew()

    def _meet(self) -> None:
        """Wait for all ranks without keeping a processor from them, as MPI's own waits do."""
        request = self._world.Ibarrier()
        while not request.Test():
            time.sleep(0.0001)


def _picklable(outcome: Outcome) -> Outcome:
    try:
        pickle.loads(pickle.dumps(outcome))
    except Exception:
        told = f"{type(outcome.error).__name__}: {outcome.error}"
        outcome.error, outcome.value = RuntimeError(told), None
    return outcome


def main(folder: str) -> None:
    """Run the cases that ``folder`` lists, in step with the other ranks of this job."""
    from disttrain.comm.group.group import ProcessGroup
    from disttrain.comm.transports.mpi.connect import connect
    from disttrain.comm.transports.mpi.station import station

    here = station()
    comms = {n: here.world.Split(0 if here.rank < n else 1) for n in range(1, here.size + 1)}
    for index, (module, owner, name, params) in enumerate(
        pickle.loads((Path(folder) / "cases").read_bytes())
    ):
        cls = getattr(importlib.import_module(module), owner)
        settings = getattr(cls, "settings", {})
        ranks = InStep(here, lambda n, s=settings: ProcessGroup(connect(here, comms[n], **s)))
        try:
            getattr(cls(), name)(ranks, **params)
        except BaseException:  # the outer run of the same function tells
            ranks.recorded = ranks.recorded or []
        if here.rank == 0:
            done = Path(folder) / f"case-{index}"
            done.with_suffix(".new").write_bytes(pickle.dumps(ranks.recorded))
            done.with_suffix(".new").rename(done)
    here.world.Barrier()
    here.detach()
    here.MPI.COMM_WORLD.Abort(0)  # calls that were broken off are still on their way


if __name__ == "__main__":
    main(sys.argv[1])
