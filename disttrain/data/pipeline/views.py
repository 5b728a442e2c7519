"""Pipelines in front of a program that has elements, specifications and errors of another kind.

A subclass of ``View`` says what a leaf is on either side, and offers the methods of pipelines::

    class Lists(View):
        show_leaf = staticmethod(lambda leaf: leaf.tolist())

    offer(Lists, "map batch", shuffle="Mixed")

Functions that a program gives are called with elements of its kind, outside of a function that is
being traced: as they come, with their side effects.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from ...errors import DisttrainError, SerializationError
from ...graphs import CURRENT, outside
from ...graphs.streams import drawn
from .elements import map_leaves
from .pipeline import Pipeline
from .specs import INFINITE, PipelineSpec

Self = TypeVar("Self", bound="View")


class ViewIterator:
    """One pass through a view, with its position."""

    begin: ClassVar[Callable[[Pipeline], Any]] = iter

    def __init__(self, view: View) -> None:
        self._view = view
        self._iterator = type(self).begin(view.pipeline)

    def __iter__(self) -> ViewIterator:
        return self

    def __next__(self) -> Any:
        if CURRENT.get() is not None:
            return drawn(getattr(self, "get_next", self.__next__), self.element_spec)
        with self._view.told():
            return self.show(next(self._iterator))

    def show(self, element: Any) -> Any:
        """An element as the program's."""
        return self._view.shown(element)

    @property
    def element_spec(self) -> Any:
        """What an element looks like."""
        return self._view.element_spec

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        found: dict[str, Any] = self._iterator.state_dict()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there, from anywhere."""
        self._iterator.close()
        self._iterator = type(self).begin(self._view.pipeline)
        self._iterator.load_state_dict(state)


class ArrayIterator(ViewIterator):
    """Elements as numpy's arrays, numbers and ``bytes``."""

    begin = Pipeline.as_numpy_iterator

    def show(self, element: Any) -> Any:
        """Pipelines among the leaves as views."""
        kind = type(self._view)
        return map_leaves(lambda x: kind(x) if isinstance(x, Pipeline) else x, element)


class Settings(SimpleNamespace):
    """What goes along with a view; None: nothing is said."""

    def merge(self, others: Any) -> Any:
        """``others`` over these."""
        out = type(self)()
        for mine in (self, others):
            vars(out).update({k: v for k, v in vars(mine).items() if v is not None})
        return out


class View:
    """A pipeline. ``title``: what the last stage is called; ``options``: whatever goes along from
    stage to stage."""

    noun: ClassVar[str] = "pipeline"
    iterator: ClassVar[type[ViewIterator]] = ViewIterator
    arrays: ClassVar[type[ViewIterator]] = ArrayIterator
    unused: ClassVar[tuple[str, ...]] = ()  # parameters that methods take beside their own
    elements: ClassVar[frozenset] = frozenset({  # parameters that are elements, or like them
        "tensors", "initial_state", "pipelines", "structure"})  # fmt: skip

    def __init__(self, pipeline: Pipeline, title: str = "", options: Any = None) -> None:
        self.pipeline, self.title, self._options = pipeline, title, options

    # --- what a subclass may say otherwise --------------------------------------------------------
    @staticmethod
    def show_leaf(leaf: Any) -> Any:
        """A leaf of an element (that is no pipeline) as the program's."""
        return leaf

    @staticmethod
    def give_leaf(leaf: Any) -> Any:
        """What a program gives as a leaf, for the pipeline."""
        return leaf

    @staticmethod
    def show_spec(spec: Any) -> Any:
        """The specification of a leaf as the program's."""
        return spec

    @staticmethod
    def parameter(name: str, value: Any) -> Any:
        """What is neither a function nor an element, for the pipeline."""
        return value

    @staticmethod
    def seed(own: Any) -> Any:
        """The seed of a stage, of which ``own`` is given."""
        return own

    @staticmethod
    def failed(kind: str, message: str) -> Exception | None:
        """What is raised for an error of pipelines: "missing" (a file), "damaged" or "invalid";
        None: the error itself."""
        return None

    # --- both sides -------------------------------------------------------------------------------
    @classmethod
    def shown(cls, element: Any) -> Any:
        """An element as the program's."""
        return map_leaves(
            lambda x: cls(x) if isinstance(x, Pipeline) else cls.show_leaf(x), element
        )

    @classmethod
    def given(cls, element: Any) -> Any:
        """An element of the program's for a pipeline."""
        return map_leaves(
            lambda x: x.pipeline if isinstance(x, View) else cls.give_leaf(x), element
        )

    @classmethod
    def called(cls, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the program's for a pipeline."""
        if not callable(fn):
            raise ValueError(
                f"Argument `func` must be a callable. Received func={fn} (of type {type(fn)})"
            )

        def call(*args: Any) -> Any:
            with outside():
                return cls.given(fn(*[cls.shown(a) for a in args]))

        return call

    @classmethod
    @contextlib.contextmanager
    def told(cls, same: type[BaseException] | tuple = ()) -> Iterator[None]:
        """Errors of pipelines as the program's; those of ``same`` stay."""
        try:
            yield
        except same:
            raise
        except (DisttrainError, FileNotFoundError) as error:
            message = f"{getattr(error, 'filename', '')}; No such file or directory"
            kind = "missing"
            if isinstance(error, DisttrainError):
                kind = "damaged" if isinstance(error, SerializationError) else "invalid"
                message = str(error).replace("a pipeline", f"a {cls.noun}")
                message = message.replace("Pipeline", cls.noun.title())
            told = cls.failed(kind, message)
            if told is None:
                raise
            raise told from error

    # --- what every view has ----------------------------------------------------------------------
    def __iter__(self) -> Any:
        return self.iterator(self)

    def as_numpy_iterator(self) -> Any:
        """Elements as numpy's."""
        return self.arrays(self)

    def __len__(self) -> int:
        count = self.pipeline.cardinality()
        if count < 0:
            what = "is infinite" if count == INFINITE else "length is unknown"
            raise TypeError(f"The {self.noun} {what}.")
        return count

    def __bool__(self) -> bool:
        return True

    @property
    def element_spec(self) -> Any:
        """What an element looks like."""
        return self._spec(self.pipeline.element_spec)

    def _spec(self, spec: Any) -> Any:
        def one(leaf: Any) -> Any:
            nested = isinstance(leaf, PipelineSpec)
            return self.show_spec(PipelineSpec(self._spec(leaf.element_spec)) if nested else leaf)

        return map_leaves(one, spec)

    def reduce(self, initial_state: Any, reduce_func: Any, name: str | None = None) -> Any:
        """``reduce_func(state, element)`` over all."""
        with self.told():
            state = self.given(initial_state)
            return self.shown(self.pipeline.reduce(state, self.called(reduce_func)))

    def apply(self, transformation_func: Any) -> Any:
        """``transformation_func(self)``."""
        return transformation_func(self)

    def get_single_element(self, name: str | None = None) -> Any:
        """The one element."""
        with self.told():
            return self.shown(self.pipeline.get_single_element())

    def save(self, path: Any, *args: Any, **options: Any) -> None:
        """Write all elements into a folder."""
        with self.told():
            self.pipeline.save(os.fspath(path))

    def options(self) -> Any:
        """What goes along."""
        return self._options

    def with_options(self: Self, options: Any, name: str | None = None) -> Self:
        """The same with other options, which replace those that they name (``merge``)."""
        merged = options if self._options is None else self._options.merge(options)
        return type(self)(self.pipeline, "Options", merged)


def _given(view: type[View], name: str, value: Any) -> Any:
    """An argument for the pipeline's method."""
    if name.endswith(("_func", "predicate")):
        return view.called(value)
    if name in view.elements or isinstance(value, View):
        return view.given(value)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], View):
        return [v.pipeline for v in value]
    return view.parameter(name, value)


def offered(
    view: type[View], word: str, title: str, name: str = "", same: Any = FileNotFoundError,
    **others: str,
) -> Callable[..., Any]:  # fmt: skip
    """The method ``word`` of pipelines (a function, of a source) for ``view``, called ``name``.
    ``others``: parameters of other names. ``same``: errors that stay as they are."""
    native = getattr(Pipeline, word)
    mine = list(inspect.signature(native).parameters.values())
    mine = [p.replace(name=others.get(p.name, p.name)) for p in mine if p.name != "self"]
    names = {p.name for p in mine}
    star = next((p.name for p in mine if p.kind is p.VAR_POSITIONAL), "")
    kind = inspect.Parameter.KEYWORD_ONLY if star else inspect.Parameter.POSITIONAL_OR_KEYWORD
    more = [inspect.Parameter(n, kind, default=None) for n in view.unused if n not in names]
    signature = inspect.Signature([*mine, *more])
    needed = {p.name for p in mine if p.default is p.empty}
    back = {theirs: ours for ours, theirs in others.items()}

    def make(fn: Any, options: Any, args: tuple, kwargs: dict) -> View:
        bound = signature.bind(*args, **kwargs).arguments
        values = {back.get(k, k): _given(view, back.get(k, k), v) for k, v in bound.items()
                  if k in names and (v is not None or k in needed)}  # fmt: skip
        several = values.pop(star, ())
        if "seed" in names:
            values["seed"] = view.seed(values.get("seed"))
        with view.told(same):
            return view(fn(*several, **values), title, options)

    def method(self: View, *args: Any, **kwargs: Any) -> View:
        return make(getattr(self.pipeline, word), self._options, args, kwargs)

    def source(*args: Any, **kwargs: Any) -> View:
        return make(native, None, args, kwargs)

    found: Any = source if inspect.ismethod(native) else method
    found.__name__ = found.__qualname__ = name or word
    found.__doc__ = native.__doc__
    return found


def offer(view: type[View], words: str, **titles: str) -> None:
    """Give ``view`` methods of pipelines; a stage is called as its word, in capitals, or by
    ``titles``."""
    for word in [*words.split(), *titles]:
        title = titles.get(word) or word.title().replace("_", "")
        made = offered(view, word, title)
        alone = inspect.ismethod(getattr(Pipeline, word))
        setattr(view, word, staticmethod(made) if alone else made)


def applied(word: str) -> Callable[..., Any]:
    """The method ``word`` as a function that gives what ``apply`` takes."""
    return lambda *args, **kwargs: lambda view: getattr(view, word)(*args, **kwargs)
