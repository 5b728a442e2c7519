"""Generated and hand-written kernels on the device against what they mean by numpy.

The cases are those of the tests, which run the same text on the host: here a launch through the
platform stands in for theirs. Arrays lie on the device as they lie on the host, in memory around
them that must stay as it is.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from standins.cuda_on_host import Case

from disttrain.backends.lang.kernel import Array

from ..journal import Job, Skip
from .places import start

GENERATED = "backends.cuda.codegen.test_meaning"
WRITTEN = "backends.device.codes.test_table"


def prove(job: Job) -> None:
    """Every test of those files that compiles cases and runs them."""
    platform = start(job)
    tests: list[tuple[str, Any, Callable[..., Any]]] = []
    for name in (GENERATED, WRITTEN):
        module = importlib.import_module(name)
        tests += [
            (test, module, fn)
            for test, fn in vars(module).items()
            if test.startswith("test_") and list(inspect.signature(fn).parameters) == ["tmp_path"]
        ]
    for k, (test, module, fn) in enumerate(tests):
        if k % job.shards == job.shard:
            _one(job, platform, test, module, fn)


def _one(job: Job, platform: Any, test: str, module: Any, fn: Callable[..., Any]) -> None:
    found = OnDevice(job, platform, test, module)
    original = module.Run if hasattr(module, "Run") else module.Cases
    name = original.__name__
    setattr(module, name, lambda: found)
    try:
        fn(None)
    except Exception as error:
        if not found.passed_over:  # else results are missing that it compares
            job.case(f"{test}: afterwards", functools.partial(_again, error), mine=True)
    finally:
        setattr(module, name, original)


def _again(error: Exception) -> None:
    raise error


class OnDevice:
    """Stands in for the tests' collections of cases."""

    def __init__(self, job: Job, platform: Any, test: str, module: Any) -> None:
        self.job, self.platform, self.test, self.module = job, platform, test, module
        self.cases: list[tuple[str, Callable[..., None], Any]] = []
        self.passed_over = False

    def add(self, what: Any, *args: Any, **more: Any) -> Any:
        """A kernel with a list of arguments and a label, or a code with its arguments."""
        if hasattr(what, "reference"):
            self.cases.append((f"{what.name} {_about(args)}", self._code, (what, args, more)))
            return None
        given, label, sets = (*args, *("", None)[len(args) - 1 :])
        case = Case(what, *given, sets=more.get("sets", sets))
        self.cases.append((f"{what.name} {more.get('label', label)}", self._kernel, case))
        return case

    def check(self, folder: Any, exact: bool = False) -> None:
        """Run them all."""
        for k, (label, fn, given) in enumerate(self.cases):
            name = f"{self.test} {k}: {label}".splitlines()[0].strip()
            self.passed_over |= name in self.job.after
            self.job.case(name, lambda fn=fn, given=given: fn(given, exact), mine=True)

    def _kernel(self, given: Case, exact: bool) -> None:
        if not self.job.real and given.kernel.flat and "index" in str(given.kernel):
            raise Skip("the stand-in runs a kernel by rows, and knows no places in the whole")
        wanted = [[_apart(a) for a in one] for one in given.sets]
        for one in wanted:
            self.module._interpret(given.kernel, one)
        there = [[_Lying(self.platform, a) for a in one] for one in given.sets]
        raws = [tuple(a.raw for a in one) for one in there]
        if len(raws) > 1:
            self.platform.launch_many(given.kernel, raws)
        else:
            self.platform.launch(given.kernel, raws[0])
        for a in (a for one in there for a in one):
            a.back()
        for one, want in zip(given.sets, wanted):
            for p, a, w in zip(given.kernel.params, one, want):
                if isinstance(p, Array):
                    kernel = None if exact else given.kernel
                    self.module._same(a, w, f"{given.kernel.name}: {p.name}", kernel)

    def _code(self, given: tuple, exact: bool) -> None:
        code, args, more = given
        mine = [_apart(a) for a in args]
        lying = [_Lying(self.platform, a) for a in mine]
        self.platform.run_code(code, tuple(a.raw for a in lying))
        for there in lying:
            there.back()
        wanted = [_apart(a) for a in args]
        code.reference(*wanted)
        for got, want in zip(mine, wanted):
            if isinstance(want, np.ndarray):
                self.module._same(got, want, more.get("tolerance", 0.0), code.name)


class _Lying:
    """An argument on the device, with the memory around it: ``raw``; ``back`` brings it all."""

    def __init__(self, platform: Any, a: Any) -> None:
        self.platform, self.a, self.raw = platform, a, a
        self.owner: np.ndarray | None = None
        self.memory = None
        if not isinstance(a, np.ndarray):
            return
        owner = a
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        plain = a.flags.c_contiguous and a.size == owner.size
        if plain or not owner.flags.c_contiguous or not a.size:
            self.owner, self.memory = a, platform.upload(a, 0)
            self.raw = self.memory
            return
        self.owner, self.memory = owner, platform.upload(owner, 0)
        first = (_address(a) - _address(owner)) // a.itemsize
        strided = platform.xp.lib.stride_tricks.as_strided
        self.raw = strided(self.memory.reshape(-1)[first:], a.shape, a.strides)

    def back(self) -> None:
        if self.owner is not None:
            self.owner[...] = self.platform.download(self.memory)


def _address(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def _apart(a: Any) -> Any:
    return a.copy(order="K") if isinstance(a, np.ndarray) else a


def _about(args: tuple) -> str:
    return " ".join(f"{a.dtype}{list(a.shape)}" for a in args if isinstance(a, np.ndarray))
