"""Settings: TOML files and command lines into frozen dataclasses, and back.

A component declares its settings as a frozen dataclass beside itself; a program nests several of
them in one. This file fills such a dataclass from a TOML file and from overrides, checks every key
and type, and knows no setting by name.

    @dataclass(frozen=True)
    class Optim:
        lr: float = 0.1
        betas: tuple[float, float] = (0.9, 0.999)

    @dataclass(frozen=True)
    class Config:
        optim: Optim = field(default_factory=Optim)

    config = load(Config, "configs/a.toml", ["--optim.lr", "0.01"])

Types: bool, int, float (takes an int), str, Path, Enum, Literal, dataclasses, list[T],
tuple[T, ...], tuple[A, B], dict[str, T] and unions of them. TOML has no null: the text ``none``
stands for None where None is allowed. Ranges are checked by ``__post_init__`` of the dataclass,
which raises ``ConfigError``.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
import math
import tomllib
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .errors import ConfigError

T = TypeVar("T")

_NONE = type(None)
_LONGEST_INT = 1000  # bits: what a float may be, and Python still writes down
_LONGEST = 200  # characters of a value in a message
_WRONG = object()  # "this value does not fit this type"


def load(kind: type[T], path: str | Path | None = None, overrides: Sequence[str] = ()) -> T:
    """A ``kind`` from the TOML file ``path`` (None: defaults), changed by ``overrides``.

    ``overrides`` are command-line words: ``--optim.lr 0.01``, ``--optim.lr=0.01``; a boolean's
    name alone means true; lists are ``1,2,3`` or ``[1, 2, 3]``. Raises ``ConfigError`` that names
    file and line (or the override), the key, what was given and what is needed.
    """
    table: dict[str, Any] = {}
    where = _Where("defaults")
    if path is not None:
        table, where = _read(Path(path))
    for dotted, value in parse_overrides(kind, overrides).items():
        _put(table, dotted, value, where)
    return _build(kind, table, "", where)


def from_dict(kind: type[T], table: dict[str, Any], where: str = "settings") -> T:
    """A ``kind`` from nested dicts; ``where`` is how messages call their source."""
    return _build(kind, table, "", _Where(where))


def to_dict(config: Any) -> dict[str, Any]:
    """``config`` as nested dicts of plain values (text for enums and paths); reads back alike."""
    return {f.name: _plain(getattr(config, f.name)) for f in dataclasses.fields(config)}


def dump(config: object, path: str | Path | None = None) -> str:
    """``config`` as TOML text, also written to ``path`` when given. ``load`` reads it back."""
    text = "\n".join(_sections(to_dict(config), ())) + "\n"
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:  # where the disk is full, Python does not say which file
            raise OSError(error.errno, error.strerror, str(path)) from None
    return text


def describe(kind: type) -> str:
    """One line for every setting: its name, type and default. For ``--help``."""
    rows = [(f"--{name}", _spell(hint), default) for name, hint, default in _settings(kind)]
    wide = max((len(name) for name, _, _ in rows), default=0)
    wider = max((len(hint) for _, hint, _ in rows), default=0)
    return "\n".join(f"  {n:<{wide}}  {h:<{wider}}  {d}".rstrip() for n, h, d in rows)


def require(condition: bool, name: str, given: object, needed: str) -> None:
    """For ``__post_init__``: raise ``ConfigError`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(f"{name}: {_shown(given)} given; {needed} is needed")


def parse_overrides(kind: type, words: Sequence[str]) -> dict[str, Any]:
    """Command-line ``words`` as dotted names and values of the types that ``kind`` declares."""
    hints = {name: hint for name, hint, _ in _settings(kind)}
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise ConfigError(
                f"command line: {word!r} given; --name VALUE is needed, as in {_example(hints)}"
            )
        name, has_value, text = word[2:].partition("=")
        name = name.replace("-", "_")
        if name not in hints:
            raise ConfigError(f"command line: {_unknown('--' + name, name, list(hints), '--')}")
        hint = hints[name]
        if not has_value:
            text = _next_word(word, hint, rest)
        value = _from_text(text, hint)
        if value is _WRONG:
            shown = _shown(text)
            raise ConfigError(f"command line: --{name}: {shown} given; {_spell(hint)} is needed")
        found[name] = value
    return found


def _next_word(word: str, hint: object, rest: list[str]) -> str:
    """The value that follows a name; a boolean's may be left out."""
    if hint is bool and (not rest or rest[0].lower() not in ("true", "false")):
        return "true"
    if not rest or (rest[0].startswith("--") and len(rest[0]) > 2):
        raise ConfigError(f"command line: {word} needs a value of type {_spell(hint)} after it")
    return rest.pop(0)


def _example(hints: dict[str, Any]) -> str:
    return f"--{next(iter(hints))} VALUE" if hints else "no arguments: there are no settings"


# -- where a value came from, for messages ---------------------------------------------------------


class _Where:
    """The source of a table. ``at(key)`` names it, with the line for a file's keys."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name, self.text = name, text
        self.overridden: set[str] = set()

    def at(self, dotted: str) -> str:
        if any(o == dotted or o.startswith(dotted + ".") for o in self.overridden):
            return "command line"
        line = self._line(dotted)
        return f"{self.name}:{line}" if line else self.name

    def _line(self, dotted: str) -> int | None:
        section = ""
        for number, raw in enumerate(self.text.splitlines(), 1):
            line = raw.strip()
            if line.startswith("["):
                section = line.strip("[] ").split("]")[0].strip()
                if section == dotted:
                    return number
            key = line.partition("=")[0].strip().strip("\"'")
            if key and dotted == (f"{section}.{key}" if section else key):
                return number
        return None


def _read(path: Path) -> tuple[dict[str, Any], _Where]:
    try:
        text = path.read_text(encoding="utf-8")
        return parse_toml(text), _Where(str(path), text)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, _siblings(path), 3, 0.4)
        hint = f" Near it: {', '.join(near)}." if near else ""
        raise ConfigError(f"{path}: there is no such file.{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """What TOML from anywhere says. Raises ``ValueError``, also for what is valid and too much."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _siblings(path: Path) -> list[str]:
    return [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []


def _put(table: dict[str, Any], dotted: str, value: Any, where: _Where) -> None:
    *sections, last = dotted.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            return  # the file has a plain value here: _build names it
        table = inner
    table[last] = value
    where.overridden.add(dotted)


# -- tables into dataclasses -----------------------------------------------------------------------


def _build(kind: type[T], table: dict, prefix: str, where: _Where) -> T:
    if not isinstance(table, dict):
        raise ConfigError(f"{where.at(prefix)}: {prefix}: {_given(table)}; a section is needed")
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    for key in table:
        if key not in fields:
            dotted = prefix + "." + key if prefix else key
            raise ConfigError(f"{where.at(dotted)}: {_unknown(dotted, key, list(fields), '')}")
    values = {}
    for name, field in fields.items():
        dotted = f"{prefix}.{name}" if prefix else name
        if name in table:
            values[name] = _value(table[name], hints[name], dotted, where)
        elif dataclasses.is_dataclass(hints[name]) and not _has_default(field):
            values[name] = _build(typing.cast(type, hints[name]), {}, dotted, where)
        elif not _has_default(field):
            raise ConfigError(
                f"{where.at(prefix)}: {dotted} is missing; {_spell(hints[name])} is needed"
            )
    try:
        return kind(**values)
    except ConfigError as error:
        section = f"[{prefix}] " if prefix else ""
        raise ConfigError(
            f"{_blame(prefix, values, str(error), where)}: {section}{error}"
        ) from None


def _blame(prefix: str, values: dict[str, Any], message: str, where: _Where) -> str:
    """Name the line of the key that a ``__post_init__`` speaks of, when its message starts so."""
    name = message.partition(":")[0]
    if name in values:
        return where.at(f"{prefix}.{name}" if prefix else name)
    return where.at(prefix)


def _value(value: object, hint: object, dotted: str, where: _Where) -> Any:
    """``value`` as ``hint`` wants it, or a ``ConfigError``."""
    section = _section_type(hint)
    if section is not None and isinstance(value, dict):
        return _build(section, value, dotted, where)
    fitted = _fit(value, hint)
    if fitted is _WRONG:
        raise ConfigError(
            f"{where.at(dotted)}: {dotted}: {_given(value)}; {_spell(hint)} is needed"
        )
    return fitted


def _section_type(hint: object) -> type | None:
    """The dataclass in ``hint`` (itself, or one member of a union)."""
    for member in _members(hint):
        if dataclasses.is_dataclass(member):
            return typing.cast(type, member)
    return None


def _fit(value: object, hint: Any) -> Any:
    members = _members(hint)
    if len(members) > 1:
        if _NONE in members and value == "none":
            return None
        exact = [m for m in members if m is type(value)]  # an int stays one in `float | int`
        return next((v for m in exact + members if (v := _fit(value, m)) is not _WRONG), _WRONG)
    origin = typing.get_origin(hint)
    if origin in (list, tuple, dict):
        return _fit_many(value, hint, origin)
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        return next((c for c in choices if c == value and type(c) is type(value)), _WRONG)
    return _fit_one(value, hint)


def _fit_one(value: object, hint: type) -> Any:
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint) or not isinstance(hint, type):
        return value if isinstance(hint, type) and isinstance(value, hint) else _WRONG
    if issubclass(hint, enum.Enum):
        names = {str(m.value): m for m in hint} | {m.name: m for m in hint}
        return value if isinstance(value, hint) else names.get(str(value), _WRONG)
    if type(value) is int and value.bit_length() > _LONGEST_INT:
        return _WRONG
    if hint is float and type(value) is int:
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    return value if type(value) is hint or (hint is Path and isinstance(value, Path)) else _WRONG


def _fit_many(value: object, hint: object, origin: type) -> Any:
    args = typing.get_args(hint)
    if origin is dict:
        if not isinstance(value, dict):
            return _WRONG
        fitted = {k: _fit(v, args[1]) for k, v in value.items()}
        return _WRONG if any(v is _WRONG for v in fitted.values()) else fitted
    if not isinstance(value, (list, tuple)):
        return _WRONG
    if origin is tuple and args[-1] is not Ellipsis:
        if len(value) != len(args):
            return _WRONG
        items = [_fit(v, a) for v, a in zip(value, args)]
    else:
        items = [_fit(v, args[0]) for v in value]
    return _WRONG if any(v is _WRONG for v in items) else origin(items)


# -- text of the command line into values ----------------------------------------------------------


def _from_text(text: str, hint: object) -> Any:
    """The value that ``text`` means for the type ``hint``, or ``_WRONG``."""
    members = _members(hint)
    if len(members) > 1:
        if _NONE in members and text.lower() == "none":
            return None
        plain_last = sorted(members, key=lambda m: m is str)  # "3" for `int | str` is an int
        return next((v for m in plain_last if (v := _from_text(text, m)) is not _WRONG), _WRONG)
    origin = typing.get_origin(hint)
    if origin in (list, tuple):
        return _many_from_text(text, hint, origin)
    if origin is typing.Literal:
        return next((c for c in typing.get_args(hint) if str(c) == text), _WRONG)
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), _WRONG)
    try:
        if hint is int:
            return _fit_one(int(text, 0), int)
        if hint is float:
            return float(text)
    except ValueError:
        return _WRONG
    return _fit(_toml_value(text) if origin is dict else text, hint)


def _many_from_text(text: str, hint: object, origin: type) -> Any:
    if text.lstrip().startswith("["):
        return _fit(_toml_value(text), hint)
    parts = [p.strip() for p in text.split(",")] if text.strip() else []
    args = typing.get_args(hint)
    if origin is tuple and args[-1] is not Ellipsis:
        if len(parts) != len(args):
            return _WRONG
        items = [_from_text(p, a) for p, a in zip(parts, args)]
    else:
        items = [_from_text(p, args[0]) for p in parts]
    return _WRONG if any(v is _WRONG for v in items) else origin(items)


def _toml_value(text: str) -> Any:
    try:
        return parse_toml(f"v = {text}")["v"]
    except ValueError:
        return _WRONG


# -- names for messages and help -------------------------------------------------------------------


def _settings(kind: type, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every plain setting below ``kind``: dotted name, type, default as text."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        section = _section_type(hint)
        if section is not None:
            yield from _settings(section, f"{prefix}{field.name}.")
        elif field.init:
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            shown = "(needed)" if default is dataclasses.MISSING else _toml(_plain(default))
            yield prefix + field.name, hint, shown


def _unknown(shown: str, key: str, known: list[str], dashes: str) -> str:
    """The message for a key that does not exist: with the nearest that does, or with what there is.

    Looks among the keys of the same section first, then among the last parts of all keys.
    """
    section, _, last = key.rpartition(".")
    siblings = [k for k in known if k.rpartition(".")[0] == section]
    for candidates, cutoff in ((siblings, 0.6), (known, 0.75)):
        tails = {k.rpartition(".")[2]: k for k in reversed(candidates)}  # the first one wins
        near = difflib.get_close_matches(last, tails, 1, cutoff)
        if near:
            return f"{shown} is no setting; did you mean {dashes}{tails[near[0]]}?"
    near = difflib.get_close_matches(key, known, 1, 0.75)
    if near:
        return f"{shown} is no setting; did you mean {dashes}{near[0]}?"
    listed = ", ".join(dashes + k for k in (siblings or known)) or "none"
    return f"{shown} is no setting; there are: {listed}"


def _given(value: object) -> str:
    return f"{_shown(value)} ({type(value).__name__}) given"


def _shown(value: object) -> str:
    """A value as in Python, of which a long one is cut short."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python writes
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else "a value"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-20:]}"


def _spell(hint: object) -> str:
    """A type as a user reads it."""
    members = _members(hint)
    if len(members) > 1:
        return " | ".join(_spell(m) for m in members)
    if hint is _NONE:
        return "none"
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " | ".join(str(a) for a in args)
    if origin is not None:
        inner = ", ".join("..." if a is Ellipsis else _spell(a) for a in args)
        return f"{origin.__name__}[{inner}]"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " | ".join(str(m.value) for m in hint)
    return getattr(hint, "__name__", str(hint))


def _members(hint: object) -> list[Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return list(typing.get_args(hint))
    return [hint]


def _has_default(field: dataclasses.Field) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


# -- values into TOML ------------------------------------------------------------------------------


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return "none" if value is None else value


def _sections(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
    if path and (plain or not table):
        yield f"[{'.'.join(_key(p) for p in path)}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_toml(value)}"
    if plain:
        yield ""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _sections(value, (*path, key))


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else json.dumps(name, ensure_ascii=False)


def _toml(value: float | list | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return repr(value)
