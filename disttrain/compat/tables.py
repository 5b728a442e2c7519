"""Rows of a face's tables as functions: its parameters as a text, over what computes; and tables
that are texts (``rows``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..signatures import Parameters


def passing(word: str, text: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` under the name ``word``, with the parameters of ``text``."""
    row = Parameters(word, text)
    order = [row.names.index(n) for n in row.passed]

    def function(*args: Any, **kwargs: Any) -> Any:
        values = row.values(args, kwargs)
        return fn(*[values[i] for i in order])

    function.__signature__ = row.signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = word
    function.__doc__ = fn.__doc__
    return function


class Row(NamedTuple):
    """A function of a table: its name, its kind, what computes it, a mark and its parameters."""

    word: str
    kind: str
    fn: Any
    mark: str
    text: str


def rows(text: str, places: Sequence[Any], special: Mapping[str, Any] | None = None
         ) -> Iterator[Row]:  # fmt: skip
    """The rows of a table: ``mark name ... | parameters;``, each of functions that have the same
    parameters. A name is ``word[:Kind][=native]``: the kind is the words of ``word`` in capitals
    unless it is said; what computes is what ``special`` has for ``word``, or else what the first of
    ``places`` that has it calls ``native``."""
    for entry in filter(str.strip, text.split(";")):
        heads, _, parameters = entry.partition("|")
        mark, *names = heads.split()
        for name in names:
            head, _, native = name.partition("=")
            word, _, kind = head.partition(":")
            kind = kind or "".join(w[:1].upper() + w[1:] for w in word.split("_"))
            fn = (special or {}).get(word)
            if fn is None:
                fn = getattr(next(p for p in places if hasattr(p, native or word)), native or word)
            yield Row(word, kind, fn, mark, " ".join(parameters.split()))


def functions(
    text: str, places: Sequence[Any], kinds: Mapping[str, Any], op: Callable, one: Callable,
    outs: Mapping[str, Callable], special: Mapping[str, Any],
) -> dict[str, Callable]:  # fmt: skip
    """The functions of a table's rows, whose marks are types by ``kinds``: of ``op``, or, without
    parameters of their own, of ``one``. ``outs``: what becomes of their results."""
    return {r.word: op(r.word, r.kind, r.fn, r.text, kinds[r.mark], outs.get(r.word)) if r.text
            else one(r.word, r.kind, r.fn, kinds[r.mark])
            for r in rows(text, places, special)}  # fmt: skip
