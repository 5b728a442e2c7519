"""``compile``: capture once per kind of call, then replay while the capture still holds."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import context, tree
from ..backends.device.array import DeviceArray
from ..context import SLOW, thread
from ..core.observers import watched
from ..core.tensor import Tensor
from ..errors import CaptureError
from ..trace import warn
from .around import casts_anew, only_lightly
from .capture import Capture
from .drawing import text, told
from .entry import Entry, environment
from .graph import Graph
from .guards.arguments import Call, Unknown
from .guards.code import Codes
from .guards.kinds import is_module, shortly
from .guards.reach import Reach
from .guards.watch import Watch
from .joint import Joint, differentiate, join
from .modules import Forward, original, twin
from .passes import EVERYWHERE, Pass, ask_early, on_devices, optimize
from .questions import Otherwise, Path, Paths
from .regions import Regions, regions_of
from .replays.replay import Afresh
from .results import has_kept, state_of, stream_state, told_place, unfit, with_numbers
from .settings import Settings, settings_of
from .sizes.dynamic import KEPT, Forms
from .sizes.identities import asked_at
from .sizes.shapes import Found, Sizes, generalize
from .stance import EAGER, runs_first, stance

_TRIES = 3  # for a kind of call, while code and state that nobody knew of come to light
_FAILURES = 8  # of replays of a kind of call, one after the other
_DEFAULT = Settings()


class Compiled:
    """A function that is captured per kind of call, then replayed.

    A capture stands for a call with the same structure, shapes, types and ``requires_grad`` of its
    arguments, while everything that the Python code looked at (see ``reach``) is what it was; what
    it cannot know or repeat makes the kind of call run eagerly, which is said once. Hyperparameters
    of optimizers (a scheduled ``lr``) may change: their new values are put into the graph.

    Results that require grad have a graph: backward through them replays a captured backward.
    """

    def __init__(self, fn: Callable, settings: Settings = _DEFAULT) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn, self.settings = fn, settings
        self.entries: dict[Any, list[Entry]] = {}
        self.forms = Forms(settings.dynamic, self.entries)
        self.eager: dict[Any, str] = {}  # why, by kind of call
        self.reasons: list[str] = []
        self.aside: dict[str, int] = {}  # how many calls ran eagerly for other reasons
        self._failed: dict[Any, int] = {}  # how many of those since the last replay
        self._tries: dict[Any, int] = {}
        self._paths: dict[Any, Paths] = {}  # by kind of call, where Python reads numbers
        self._codes: Codes = {}  # of the program, seen to run
        self._everything = False
        self._last: tuple = ()
        self._warned = self._tried = False
        self._full: str | None = None  # why there are no more captures, once there are too many
        self._regions: Regions | None = None  # compiled inside of it, where it runs eagerly

    def __reduce__(self) -> tuple:
        return (Compiled, (self.fn, self.settings))

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def graphs(self) -> list[Graph]:
        """The captured graphs."""
        return [entry.graph for entry in self._captured()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            (thread.mode == SLOW and not only_lightly())
            or thread.before_write is not None
            or stance() == EAGER
        ):  # fmt: skip
            return self.fn(*args, **kwargs)  # inside another transform: be part of it
        try:
            call = Call(args, kwargs)
        except Unknown as why:
            return self._eagerly(str(why), args, kwargs)
        entries = self.entries.get(call.key)
        if entries is None and call.key in self.eager:
            return self._eagerly(self.eager[call.key], args, kwargs)
        if entries is None and (entries := self.forms.opened(call)) is None:
            entries = self.forms.more(call, [])
            if not entries:
                return self._first(self._new(call), call, args, kwargs)
        given = call.tensors
        reason = None
        path: Path | None = None  # what is known of that of the call
        for i, entry in enumerate(entries):
            if path is not None and not path.leads_to(entry.answers):
                continue
            stale = entry.stale(call)
            if stale is None:
                try:
                    result = entry.run(given)
                except Afresh as why:
                    return self._again(why, call, args, kwargs)
                except Otherwise as other:
                    path = other.path
                    if path is None:
                        reason = "memory lies otherwise than at capture"
                    continue
                if i:
                    entries.insert(0, entries.pop(i))
                if self._failed:
                    self._failed.pop(call.key, None)
                return result
            reason = reason or stale
        if path is not None:
            return self._elsewhere(path, reason, call, args, kwargs)
        if self.forms.more(call, entries):
            return self(*args, **kwargs)
        return self._first(reason or "", call, args, kwargs)

    # --- capturing --------------------------------------------------------------------------
    def _first(
        self, why: str, call: Call, args: tuple, kwargs: dict, path: Path | None = None
    ) -> Any:
        """Run eagerly, and capture on the way if the program allows it. ``path``: what is known of
        the one that the call takes."""
        tried, self._tried, limit = self._tried, True, self.settings.limit
        if stance() is not None and runs_first(tried, call.key in self._tries):
            self._aside(f"by the stance {stance()!r}")
            return self.fn(*args, **kwargs)
        if self._full is None:
            self.reasons.append(why)
            if len(self.reasons) - sum(p.count for p in self._paths.values()) > limit:
                self._full = f"it was captured {limit} times, the last because {why}"
                self.reasons[-1] = self._full
        if self._full is not None:  # captures of other calls, and of other paths, still stand
            if path is None and self.entries.pop(call.key, []):
                self.eager[call.key] = self._full
            self._aside(f"since {limit} captures are made")
            return self._eagerly(self._full, args, kwargs)
        if not Watch.possible():
            self.reasons.pop()
            self._aside("while a profile function was set on their thread")
            return self.fn(*args, **kwargs)
        self._last = call.parts
        attempt = _Attempt(self, call, args, kwargs)
        attempt.sizes = sizes = self.forms.sizes(call)
        attempt.recorded = self._name() if self.settings.recorded else None
        try:
            result = attempt.run()
        finally:
            attempt.recorder.close()
        self._codes.update(attempt.watch.codes)
        self._everything |= attempt.watch.everything
        if attempt.entry is not None:
            self._keep(call.key, attempt.entry)
            if attempt.found is not None:
                self.forms.take(call, attempt.entry, attempt.found)
            elif sizes:
                self.forms.leave(call, sizes, attempt.unlike)
            self.forms.again(call, self._name(), limit)
        else:
            if attempt.found is not None:  # (it may be one with fixed sizes)
                self.forms.leave(call, sizes, str(attempt.refused))
            self._refused(attempt, call.key, path)
        return result

    def _keep(self, key: tuple, entry: Entry) -> None:
        """One more capture of a kind of call; of each path some are kept."""
        entries = self.entries.setdefault(key, [])
        entries.insert(0, entry)
        alike = [e for e in entries if e.answers == entry.answers]
        for old in alike[KEPT:]:
            entries.remove(old)
        self._tries.pop(key, None)

    def _refused(self, attempt: _Attempt, key: tuple, path: Path | None) -> None:
        """There is no capture of this call."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        done = attempt.final or tries >= _TRIES
        if done and path is not None:  # others may still be replayed
            self._paths[key].eager[path.answers] = str(attempt.refused)
            self.reasons[-1] += f"; that path runs eagerly: {attempt.refused}"
            self._tries.pop(key)
            self._warn(f"on one of its paths: {attempt.refused}")
        elif done and (tries >= _TRIES or not attempt.asked):
            self._divide(attempt)
            self._give_up(key, str(attempt.refused))
        else:
            self.reasons[-1] += f"; not captured yet: {attempt.refused}"

    def _divide(self, attempt: _Attempt) -> None:
        """Let parts of what runs eagerly be compiled, where modules in reach say which."""
        parts = regions_of(attempt.before.modules)
        if parts and self._regions is None:
            self._regions = Regions(parts, lambda part: Compiled(part, self.settings))

    def _elsewhere(
        self, path: Path, reason: str | None, call: Call, args: tuple, kwargs: dict
    ) -> Any:
        """A call that takes no path that is captured, or one whose capture does not stand."""
        paths = self._paths.setdefault(call.key, Paths())
        why = paths.eager_since(path)
        if why is not None:
            return self._eagerly(why, args, kwargs)
        if reason is None:
            reason = f"another path since {path.site}"
            why = paths.more(path)
            if why is not None:
                self.reasons.append(reason)
                self._give_up(call.key, why)
                return self.fn(*args, **kwargs)
        return self._first(reason, call, args, kwargs, path)

    def _give_up(self, key: tuple, why: str) -> None:
        self.reasons[-1] += f"; runs eagerly: {why}"
        self.entries.pop(key, None)
        self.eager[key] = why
        self._check_full(why)
        self._warn(why)

    def _eagerly(self, why: str, args: tuple, kwargs: dict) -> Any:
        """The function itself, since ``why``."""
        self._check_full(why)
        self._warn(why)
        if self._regions is not None:
            return self._regions(self.fn, args, kwargs)
        return self.fn(*args, **kwargs)

    def _again(self, why: Afresh, call: Call, args: tuple, kwargs: dict) -> Any:
        """The function itself after a replay that failed: it raises, too, or catches what failed.
        Where replays go on failing that it does without, it runs eagerly."""
        result = self.fn(*args, **kwargs)
        self._aside("after a replay that failed")
        failed = self._failed[call.key] = self._failed.get(call.key, 0) + 1
        if failed == _FAILURES:
            del self._failed[call.key]
            cause = why.__cause__
            self.reasons.append(f"{failed} replays failed one after the other")
            self._give_up(call.key, f"a replay raised {type(cause).__name__}: {cause}")
        return result

    def _aside(self, why: str) -> None:
        """Count a call that ran eagerly, and may be replayed another time."""
        self.aside[why] = self.aside.get(why, 0) + 1

    def _check_full(self, why: str) -> None:
        if self.settings.fullgraph:
            raise CaptureError(
                f"compile: {self._name()} with fullgraph=True would run eagerly: {why}"
            )

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            inside = "" if self._regions is None else self._regions.count()
            warn(f"compile: {self._name()} runs eagerly: {why}{inside}")

    def _captured(self) -> list[Entry]:
        return [e for found in self.entries.values() for e in found if isinstance(e, Entry)]

    # --- telling ----------------------------------------------------------------------------
    def _name(self) -> str:
        name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        code = getattr(self.fn, "__code__", None)
        return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name

    def _new(self, call: Call) -> str:
        if not self._last:
            return "first call"
        for i, (old, new) in enumerate(zip(self._last, call.parts, strict=False)):
            if old != new:
                return f"part {i} of the call: {shortly(old)} became {shortly(new)}"
        return "it was called with other arguments"

    def explain(self, *, graph: bool = False) -> str:
        """How often it was captured, and why each time. ``graph``: each captured graph, too, as it
        was and after every pass."""
        entries = self._captured()
        lines = [f"{self._name()}: {len(entries)} captured, {len(self.eager)} eager"]
        lines += [f"  {i}: {r}" for i, r in enumerate(self.reasons)]
        lines += [
            f"  graph {i}: {line}"
            for i, entry in enumerate(entries)
            for line in told(entry.graph, entry.made_of[0])
        ]
        lines += [f"  {count} calls ran eagerly {why}" for why, count in self.aside.items()]
        lines += self.forms.told()
        lines += self._regions.explain() if self._regions is not None else []
        if graph:
            lines += [f"\n{text(*entry.made_of)}" for entry in entries]
        return "\n".join(lines)


class _Attempt:
    """One eager run with everything watched, and the capture that comes out of it, if one does."""

    def __init__(self, run: Compiled, call: Call, args: tuple, kwargs: dict) -> None:
        self.fn, self.call, self.args, self.kwargs = run.fn, call, args, kwargs
        self.settings = run.settings
        self.before = Reach((run.fn, args, kwargs), run._codes, everything=run._everything)
        self.recorder = Capture(call.tensors, self.before, strict=False)
        self.recorder.questions.open = self.settings.asks
        self.watch = Watch(self.recorder.questions.given)
        self.entry: Entry | None = None
        self.refused: str | None = None
        self.recorded: str | None = None  # the name, where a device's steps are to be CUDA graphs
        self.sizes: Sizes = ()  # to be taken as symbols
        self.found: Found | None = None
        self.unlike = ""  # why they are not
        self.final = True  # whether another attempt would end alike
        self.asked = False  # whether Python read numbers, so that another call may end otherwise

    def run(self) -> Any:
        """The result of the run. Sets ``entry``, or ``refused``."""
        outside = environment()
        states = [state_of(o) for o in self.before.optimizers]
        streams = [stream_state(s) for s in self.before.streams]
        recorder, places = self.recorder, list[int]()
        joint = graph = None
        passes: tuple[Pass, ...] = ()
        with watched(), casts_anew(), context.interpreter(recorder):
            with recorder.questions.called(self.fn), self.watch:
                result = self.fn(*self.args, **self.kwargs)
            leaves, rebuild = tree.flatten(result)
            leaves, places = recorder.questions.placed(leaves)
            if self._fits(recorder, result, leaves, outside, states, streams):
                joint, why = differentiate(recorder, leaves)
                self._refuse(why)
                self.final = why is not None
        self.asked = bool(recorder.questions.seen)
        if self.sizes and self.refused is None:
            self._generalize(leaves, joint)
        if self.refused is None:
            graph = ask_early(recorder.graph(leaves))
            passes = self._passes(graph)
            self._refuse(recorder.refused)
        if joint is not None and self.refused is None and joint.freed is None:
            graph = None if graph is None else join(graph, joint, recorder, passes)
            if graph is None:
                self._refuse("its result's graph reads gradients")
        if self.refused is None and graph is not None:
            roots = (self.fn, *self.call.objects)
            now = Reach(roots, self.watch.codes, expand=False, everything=self.watch.everything)
            self._refuse(None if not now.opaque else f"it looks at {now.opaque[0]}, whose state "
                         "cannot be compared")  # fmt: skip
            names = [name for t in self.call.tensors for name in now.own_names(t)]
            self._refuse(f"it looks at {names[0]} of an argument, a tensor" if names else None)
            whole = optimize(graph, passes)
            trial = whole.program.trial
            if trial is not None:
                given = (*self.call.tensors, *whole.captured)
                self._refuse(trial.why_not(given, whole.metas))
            if self.refused is None:
                self.entry = Entry(
                    whole, with_numbers(rebuild, places), now, self.call, joint, recorder,
                    self.recorded, self.settings.backend,
                )  # fmt: skip
                self.entry.made_of = graph, passes
        return result

    def _generalize(self, leaves: list, joint: Joint | None) -> None:
        """Let the capture hold for other sizes, too, if it can."""
        site = asked_at(self.watch.codes.values())
        if site is not None:
            self.unlike = f"it asks at {site} whether two things are one, which may be numbers"
            return
        try:
            with casts_anew():
                self.found = generalize(
                    self.recorder, self.fn, self.args, self.kwargs, leaves, joint, self.sizes,
                    self.before.holders,
                )  # fmt: skip
        except KeyboardInterrupt:
            raise
        except BaseException as why:  # (a program may raise what it likes where it would not else)
            self.unlike = str(why)

    def _passes(self, graph: Graph) -> tuple[Pass, ...]:
        """Those asked for; where not all that the graph is given are NumPy's arrays, those of
        devices, or those that know nothing of kernels. (What is spread over ranks is left alone
        by all.)"""
        passes = self.settings.passes
        given = [t.array for t in (*self.call.tensors, *graph.captured)]
        own = [a for a in given if not getattr(a, "outward", False)]
        kinds = {a.__class__ for a in own}
        if graph.there and kinds <= {np.ndarray, DeviceArray} and len(own) == len(given):
            return on_devices(passes, self.recorded is not None)
        if kinds <= {np.ndarray}:
            return passes
        return tuple(each for each in passes if each in EVERYWHERE)

    def _fits(
        self,
        recorder: Capture,
        result: Tensor | list | tuple | None,
        leaves: list,
        outside: tuple,
        states: list,
        streams: list,
    ) -> bool:
        """Whether a replay could stand for the run, as far as Python is concerned."""
        before, watch = self.before, self.watch
        said = recorder.effects.said or watch.outward
        self._refuse(said or recorder.refused or watch.refused or recorder.odd_argument())
        if before.lost:
            self._refuse("it can reach more state than every call could compare")
        if environment() != outside:
            self._refuse("it changes a mode (recording, default type), which a replay would not")
        if streams != [stream_state(s) for s in before.streams]:
            self._refuse("it draws from a random generator that is not disttrain's")
        if self.refused is None:
            self._refuse(unfit(result, leaves, before))
        if self.refused is not None:
            return False
        self.final = False
        for holder in before.holders:
            why = holder.change(holder.read())
            if why is not None:
                self._refuse(f"it changes {told_place(why)}, which a replay would not")
                return False
        if not all(map(has_kept, before.optimizers, states)):
            self._refuse("it replaces what an optimizer keeps")
        elif not (watch.codes.keys() <= before.codes.keys()) or (
            watch.everything and not before.everything
        ):
            self._refuse("code ran that nobody knew of")
        return self.refused is None

    def _refuse(self, why: str | None) -> None:
        self.refused = self.refused or why


def compile(  # noqa: A001  (the field's name)
    fn: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: object = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    fast_math: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
) -> Any:
    """Capture ``fn`` and replay it. Usable as a decorator, of methods too. See ``Compiled``.

    ``fullgraph``: raise ``CaptureError`` where a call would run eagerly (after the run that showed
    it, whose effects stay).

    ``dynamic``: capture once for all sizes of dimensions, where the program allows it: True from
    the first call on, None (the default) of dimensions that had two sizes, False of none.

    ``mode="reduce-overhead"`` (and ``"max-autotune"``, ``backend="cudagraphs"``, or
    ``options={"triton.cudagraphs": True}``): what runs on a device is recorded as CUDA graphs, so
    that a call is few launches. ``disable``: ``fn`` itself. Other options and backends of PyTorch's
    are accepted, without effect; other names are a ``CaptureError``. ``recompile_limit``: of
    captures (32), which are never shared (``isolate_recompiles``) nor called ``name``.
    ``options={"activation_memory_budget": 0.5}``: hold at most that share of the memory that the
    step would hold at its peak, where values can be computed again instead.

    Of a Module, the result is its twin: the same parameters, buffers, hooks and attributes, under
    the same names, and a forward that is replayed, as is the backward through its results. The
    module itself (``_orig_mod``) stays as it is.
    """
    settings = settings_of(fullgraph, backend, mode, options, fast_math, dynamic, recompile_limit)
    if fn is None:
        return lambda f: f if disable else _compiled(f, settings)
    return fn if disable else _compiled(fn, settings)


def forward_of(module: Any, *, disable: bool = False, **words: Any) -> Compiled | None:
    """The forward of ``module``, compiled; None with ``disable``. The words are ``compile``'s."""
    made = compile(original(module), disable=disable, **words)
    return None if disable else type(made).forward.run


def _compiled(fn: Callable, settings: Settings) -> Any:
    if is_module(fn):
        module = original(fn)
        return twin(module, Compiled(Forward(module), settings))
    return Compiled(fn.fn, settings) if isinstance(fn, Compiled) else Compiled(fn, settings)
