"""Pickles as data: a machine for those of its operations that make plain values.

``pickletools.genops`` cuts the text into operations; each that is known here moves values on a
stack, as the pickle machine would, and any other is refused by its name. A global is looked up in a
table of constructors, never imported. What a pickle nests or repeats is shared, so a value is no
larger than its text.
"""

from __future__ import annotations

import collections
import pickletools
import reprlib
from collections.abc import Callable
from typing import Any, Protocol

from ...core import Tensor
from ...core.types.device import device
from ...core.types.dtypes import dtype
from ...errors import SerializationError

_MARK = object()
_NONSENSE = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
_KEY_PARTS = 256  # of a key of a dict or an element of a set, which are hashed
_ALIKE = 256  # keys of one hash: more are made to take a dict hours
_VALUES = 3_000_000  # containers outside of tensors: what bounds the memory that they take
_TENSOR = 10  # at least as many as a tensor is made from
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxother, _SHORT.maxlong = 2, 60, 60


def shown(value: Any) -> str:
    """A value of a file in a message. What a pickle repeats is shared and may be shown at a length
    that has no end, so this looks two levels deep."""
    return _SHORT.repr(value)[:80]


class Global:
    """What stands for a name of a pickle: what calls of it make, and what it is where a value is
    due. ``new``: what ``cls.__new__`` makes, where that is another thing."""

    def __init__(
        self, name: str, make: Callable[..., Any] | None = None, value: Any = None,
        new: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.make, self.value, self.new = name, make, value, new or make


class Refused(SerializationError):
    """A pickle asks for more than data."""


class ByIdentity:
    """A value that is equal to itself alone, and is hashed in a moment."""


class Source(Protocol):
    """Where a pickle is read from."""

    def read(self, size: int, /) -> bytes:
        """So many bytes, or what there is."""
        ...

    def readline(self) -> bytes:
        """Up to the end of a line."""
        ...

    def tell(self) -> int:
        """The position."""
        ...


Find = Callable[[str, str], Global]
Persistent = Callable[[Any], Any]
Finish = Callable[[Any, Any], None]


class Machine:
    """Follows one pickle. ``find``: (module, name) -> a global; ``persistent``: the value of a
    reference to what lies outside of the pickle; ``finish``: gives a value its state."""

    def __init__(self, where: str, find: Find, persistent: Persistent, finish: Finish) -> None:
        self._where, self._find, self._persistent = where, find, persistent
        self._finish = finish
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._keys = Keys()
        self._left = _VALUES

    def load(self, file: Source) -> Any:
        """The value of the pickle that begins at the position of ``file``."""
        self._stack, self._memo = [], {}
        try:
            for opcode, argument, at in pickletools.genops(file):  # type: ignore[arg-type]
                if opcode.name == "STOP":
                    return self._value(self._pop())
                step = _STEPS.get(opcode.name)
                if step is None:
                    raise Refused(f"operation {opcode.name} at byte {at} does more than make data")
                step(self, argument)
        except SerializationError as error:
            if str(error).startswith(self._where):  # of the archive, which says where
                raise
            raise type(error)(f"{self._where}: {error}") from None
        except RecursionError:
            raise SerializationError(f"{self._where}: nested too deeply") from None
        except _NONSENSE as error:
            raise SerializationError(
                f"{self._where}: the pickle in it makes no sense ({type(error).__name__}: "
                f"{error}); the file is damaged"
            ) from None
        raise SerializationError(f"{self._where}: the pickle in it has no end")

    # --- the stack -------------------------------------------------------------------------------

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def make(self, container: Any) -> None:
        """Something that takes far more memory than its text."""
        self._left -= 1
        if self._left < 0:
            raise SerializationError(
                f"more than {_VALUES} dicts, lists, tuples, sets and objects outside tensors; keep "
                "long lists of numbers as tensors"
            )
        self._push(container)

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value is due")
        return value

    def _to_mark(self) -> list[Any]:
        stack = self._stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark")
        found = stack[at + 1 :]
        del stack[at:]
        return [self._value(v) for v in found]

    def _value(self, found: Any) -> Any:
        """What a global is where it is no constructor: a type of numbers, say."""
        if not isinstance(found, Global):
            return found
        if found.value is None:
            raise Refused(f"{found.name} stands where a value is due")
        return found.value

    # --- operations ------------------------------------------------------------------------------

    def put(self, index: int | None) -> None:
        self._memo[len(self._memo) if index is None else index] = self._stack[-1]

    def get(self, index: int) -> None:
        self._push(self._memo[index])

    def tuple_of(self, count: int) -> None:
        found = [self._value(self._pop()) for _ in range(count)]
        self.make(tuple(reversed(found)))

    def append(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise TypeError(f"values for a {type(target).__name__}")
        target.extend(values)

    def set_items(self, found: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise TypeError(f"items for a {type(target).__name__}")
        for key, value in zip(found[::2], found[1::2], strict=True):
            target[self._keys.take(key)] = value

    def add(self, found: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not set:
            raise TypeError(f"elements for a {type(target).__name__}")
        target.update(map(self._keys.take, found))

    def refer(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push(self._find(module, name))

    def refer_to_two(self, argument: None) -> None:
        name, module = self._pop(), self._pop()
        if type(module) is not str or type(name) is not str:
            raise TypeError("a global that has no name")
        self._push(self._find(module, name))

    def call(self, name: str) -> None:
        args, made = self._pop(), self._pop()
        make = getattr(made, name) if isinstance(made, Global) else None
        if make is None or type(args) is not tuple:
            raise Refused(f"a call of {getattr(made, 'name', type(made).__name__)}")
        found = make(*args)
        if isinstance(found, Tensor):
            self._left += _TENSOR
        self.make(found)

    def build(self) -> None:
        """The state of a value. Ordered dicts of a module have an attribute, which says which
        version of each layer wrote them."""
        state, target = self._pop(), self._stack[-1]
        if type(target) is collections.OrderedDict and type(state) is dict:
            target.__dict__.update({k: v for k, v in state.items() if k == "_metadata"})
        else:
            self._finish(target, state)


_HASHED = (Tensor, dtype, device, ByIdentity)


class Keys:
    """Proves that keys of dicts and elements of sets are hashed and found in a moment: they are
    plain, or small tuples of such; and few of those whose hashes a file can choose are alike."""

    def __init__(self) -> None:
        self._alike: dict[int, set] = {}

    def take(self, found: Any) -> Any:
        """The key itself."""
        left, stack = _KEY_PARTS, [found]
        while stack:
            part = stack.pop()
            left -= 1
            if left < 0:
                raise ValueError("a key of too many parts")
            if type(part) is tuple:
                stack.extend(part)
            elif not isinstance(part, _PLAIN) and not isinstance(part, _HASHED):
                raise TypeError(f"a key of type {type(part).__name__}")
        if type(found) in (tuple, complex) or (type(found) is int and hash(found) != found):
            alike = self._alike.setdefault(hash(found), set())
            alike.add(found)
            if len(alike) > _ALIKE:
                raise ValueError("keys that are made to have one hash")
        return found


def set_of(values: Any = ()) -> set:
    """The set of a list, whose elements are hashed."""
    if type(values) is not list and values != ():
        raise TypeError("a set of no list")
    return set(map(Keys().take, values))


def _constant(value: Callable[[], Any]) -> Callable[[Machine, Any], None]:
    return lambda machine, argument: machine._push(value())


def _empty(kind: type) -> Callable[[Machine, Any], None]:
    return lambda machine, argument: machine.make(kind())


_STEPS: dict[str, Callable[[Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
         "SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES"), Machine._push,
    ),
    "NONE": _constant(lambda: None), "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False), "EMPTY_TUPLE": _constant(tuple),
    "EMPTY_LIST": _empty(list), "EMPTY_DICT": _empty(dict), "EMPTY_SET": _empty(set),
    "MARK": _constant(lambda: _MARK),
    "TUPLE": lambda machine, _: machine.make(tuple(machine._to_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": lambda machine, _: machine.append([machine._value(machine._pop())]),
    "APPENDS": lambda machine, _: machine.append(machine._to_mark()),
    "SETITEM": lambda machine, _: machine.set_items(
        [machine._value(machine._pop()) for _ in range(2)][::-1]
    ),
    "SETITEMS": lambda machine, _: machine.set_items(machine._to_mark()),
    "ADDITEMS": lambda machine, _: machine.add(machine._to_mark()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), Machine.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), Machine.get),
    "GLOBAL": Machine.refer, "STACK_GLOBAL": Machine.refer_to_two,
    "REDUCE": lambda machine, _: machine.call("make"),
    "NEWOBJ": lambda machine, _: machine.call("new"),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine._push(machine._persistent(machine._pop())),
}  # fmt: skip
