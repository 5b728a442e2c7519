"""The source of functions, with statements that ask what they are given.

``converted(fn, statements)`` is ``fn`` calling ``statements`` in place of Python's ``if``,
``while``,
``for`` and their like, and of each function that it calls. A ``return`` in a branch takes what
follows the ``if`` along; ``break``
and ``continue`` become flags. Functions whose source is not there stay as they are.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sysconfig
import textwrap
import types
from collections.abc import Callable
from typing import Any

NAME = "ag__"
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_NOT_OURS = (_HERE, sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], "<")


def converted(fn: Any, statements: Any) -> Any:
    """``fn`` (a function or method) under AutoGraph, or itself where there is nothing to do."""
    if isinstance(fn, types.MethodType):
        inner = converted(fn.__func__, statements)
        return fn if inner is fn.__func__ else types.MethodType(inner, fn.__self__)
    if not isinstance(fn, types.FunctionType) or getattr(fn, "ag_do_not_convert", False):
        return fn
    if fn.__code__.co_filename.startswith(_NOT_OURS) or NAME in fn.__code__.co_freevars:
        return fn  # not the program's, or a part of what is converted already
    code = _code(fn.__code__)
    if code is None:
        return fn
    own = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    own[NAME] = types.CellType(statements)
    cells = tuple(own[name] for name in code.co_freevars)
    out = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    out.__kwdefaults__, out.__dict__ = fn.__kwdefaults__, dict(fn.__dict__)
    out.__module__, out.__qualname__, out.__doc__ = fn.__module__, fn.__qualname__, fn.__doc__
    return out


@functools.cache
def _code(code: types.CodeType) -> types.CodeType | None:
    try:
        source = textwrap.dedent(inspect.getsource(code))
        module = ast.parse(source)
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None
    found = _lambda(module, code) if code.co_name == "<lambda>" else module.body[0]
    if not isinstance(found, ast.FunctionDef) or _yields(found) or _mangled(found):
        return None
    ast.increment_lineno(found, code.co_firstlineno - 1)
    whole = _factory(_Converter(found).function(), [*code.co_freevars, NAME])
    outer = compile(whole, code.co_filename, "exec")
    return _inside(_inside(outer, "ag_factory"), found.name)


def _lambda(module: ast.Module, code: types.CodeType) -> ast.FunctionDef | None:
    """The lambda of ``code`` as a function, if its line has no other one like it."""
    wanted = list(code.co_varnames[: code.co_argcount])
    found = [n for n in ast.walk(module) if isinstance(n, ast.Lambda)
             and [a.arg for a in n.args.args] == wanted]  # fmt: skip
    if len(found) != 1:
        return None
    fn = ast.parse("def ag_lambda(): return 0").body[0]
    assert isinstance(fn, ast.FunctionDef) and isinstance(fn.body[0], ast.Return)
    fn.args, fn.body[0].value = found[0].args, found[0].body
    return fn


def _mangled(fn: ast.AST) -> bool:
    """Whether it names what is private to a class, which only the class can compile."""
    words = (getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(fn))
    return any(str(w).startswith("__") and not str(w).endswith("__") for w in words)


def _inside(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _factory(fn: ast.FunctionDef, free: list[str]) -> ast.Module:
    back: ast.stmt = ast.Return(ast.Name(fn.name, ast.Load()))
    args = ast.arguments([], [ast.arg(n) for n in free], None, [], [], None, [])
    outer = ast.parse("def ag_factory(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args, outer.body = args, [fn, back]
    return ast.fix_missing_locations(ast.Module([outer], []))


def _yields(fn: ast.AST) -> bool:
    return any(isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await)) for n in ast.walk(fn))


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp,
           ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip


def _walk(nodes: list, into_loops: bool = True) -> Any:
    """The nodes below ``nodes`` of the same scope."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, _SCOPES) or (isinstance(node, (ast.For, ast.While)) and not into_loops):
            continue
        stack.extend(ast.iter_child_nodes(node))


def _stored(nodes: list) -> list[str]:
    names: set[str] = set()
    for n in _walk(nodes):
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            names.add(n.id)
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef)):
            names.add(n.name)
        elif isinstance(n, ast.alias):
            names.add((n.asname or n.name).partition(".")[0])
        elif isinstance(n, (ast.MatchAs, ast.MatchStar)) and n.name:
            names.add(n.name)
    return sorted(n for n in names if not n.startswith("ag__f"))


def _places(nodes: list) -> list[str]:
    """The attributes and items (``o.a``, ``d["k"]``) that are set there, of objects from before."""
    own = set(_stored(nodes))
    found = {
        ast.unparse(n) for n in _walk(nodes)
        if isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store)
        and _owner(n) not in {None, *own}
    }  # fmt: skip
    return sorted(found)


def _owner(node: ast.AST) -> str | None:
    """The name at the root of ``o.a[0]``; None where an index is computed."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return None
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _parsed(text: str) -> Any:
    """A statement, with the location of what it is put into."""
    made = ast.parse(text).body[0]
    for node in ast.walk(made):
        for word in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            if hasattr(node, word):
                delattr(node, word)
    return made


def _has(nodes: list, kinds: Any, into_loops: bool = True) -> bool:
    return any(isinstance(n, kinds) for n in _walk(nodes, into_loops))


def _declared(fn: ast.FunctionDef, kind: Any) -> set[str]:
    return {n for node in _walk(fn.body) if isinstance(node, kind) for n in node.names}


class _Converter(ast.NodeTransformer):
    """Rewrites one function."""

    def __init__(self, fn: ast.FunctionDef) -> None:
        self.fn, self.count = fn, 0
        self.loads = [n for n in ast.walk(fn) if isinstance(n, ast.Name)
                      and isinstance(n.ctx, ast.Load)]  # fmt: skip
        self.globals = _declared(fn, ast.Global)
        self.outside = self.globals | _declared(fn, ast.Nonlocal)
        self.state: set[str] = set()

    def function(self) -> ast.FunctionDef:
        fn = self.fn
        fn.decorator_list, fn.returns = [], None
        every = [*fn.args.posonlyargs, *fn.args.args, *fn.args.kwonlyargs]
        every += [a for a in (fn.args.vararg, fn.args.kwarg) if a is not None]
        for a in every:
            a.annotation = None
        nothing: ast.expr = ast.Constant(None)
        fn.args.defaults = [nothing for _ in fn.args.defaults]
        fn.args.kw_defaults = [d and nothing for d in fn.args.kw_defaults]
        fn.body = self._block(_with_returns(fn.body))
        known = {a.arg for a in every} | self.outside
        fn.body = [_Reads(self.state - known).visit(n) for n in fn.body]
        first = [self._line(f"{n} = {NAME}.Undefined({n!r})") for n in sorted(self.state - known)]
        skip = isinstance(fn.body[0], ast.Expr) and isinstance(fn.body[0].value, ast.Constant)
        fn.body[skip:skip] = first
        return fn

    def _line(self, text: str) -> Any:
        return _parsed(text)

    def _block(self, body: list) -> list:
        out: list[ast.stmt] = []
        for node in body:
            found = self.visit(node)
            out += found if isinstance(found, list) else [found]
        return out or [ast.Pass()]

    def _unique(self, word: str) -> str:
        self.count += 1
        return f"ag__f{self.count}_{word}"

    def _def(self, name: str, body: list, names: list[str], args: str = "") -> ast.stmt:
        known = [n for n in names if n in self.globals]
        others = [n for n in names if n not in self.globals]
        outer = self._line(f"def {name}({args}): pass")
        first = [ast.Global(known)] if known else []
        outer.body = [*first, *([ast.Nonlocal(others)] if others else []), *body]
        return outer

    def _accessors(self, names: list[str], places: list[str]) -> tuple[list, str, str, str]:
        own = [n for n in names if n not in self.outside]
        self.state |= set(own)
        get, put = self._unique("get"), self._unique("set")
        there = "".join(f"{NAME}.place(lambda: {p}, {p!r}), " for p in places)
        reads = self._line(f"def {get}(): return ({''.join(n + ', ' for n in own)}{there})")
        writes = [self._line(f"{n} = ag__f_new[{i}]") for i, n in enumerate(own)]
        for i, p in enumerate(places, len(own)):
            writes.append(self._line(f"if not isinstance(ag__f_new[{i}], {NAME}.Undefined): "
                                     f"{p} = ag__f_new[{i}]"))  # fmt: skip
        told = repr([*own, *places])
        return [reads, self._def(put, writes or [ast.Pass()], own, "ag__f_new")], get, put, told

    def visit_If(self, node: ast.If) -> Any:
        if _has([*node.body, *node.orelse], (ast.Break, ast.Continue), into_loops=False):
            return self.generic_visit(node)
        names, places = _stored([*node.body, *node.orelse]), _places([*node.body, *node.orelse])
        test = self.visit(node.test)
        returns = _has([*node.body, *node.orelse], ast.Return)
        if returns and not (_ends(node.body) and _ends(node.orelse)):
            node.test, node.body = test, self._block(node.body)
            node.orelse = self._block(node.orelse) if node.orelse else []
            return node  # inside of a loop that stays Python's
        yes, no = self._unique("then"), self._unique("else")
        made, get, put, told = self._accessors(names, places)
        made += [self._def(yes, self._block(node.body), names),
                 self._def(no, self._block(node.orelse or [ast.Pass()]), names)]  # fmt: skip
        word = "return " if returns else ""
        kind = "if_return" if returns else "if_stmt"
        call = self._line(f"{word}{NAME}.{kind}(0, {yes}, {no}, {get}, {put}, {told})")
        call.value.args[0] = test
        return [ast.copy_location(m, node) for m in (*made, call)]

    def visit_While(self, node: ast.While) -> Any:
        body, flag = self._flags(node)
        if body is None:
            return self.generic_visit(node)
        later = self._later(node)
        test = self.visit(node.test)
        if flag:
            both = self._line(f"{NAME}.and_(lambda: {NAME}.not_({flag}), lambda: 0)").value
            both.args[1].body = test
            test = both
        names, places = _stored(body), _places(body)
        ask, step = self._unique("test"), self._unique("body")
        made, get, put, told = self._accessors(names, places)
        asks = self._line(f"def {ask}(): return 0")
        asks.body[0].value = test
        made += [asks, self._def(step, self._block(body), names)]
        first = [self._line(f"{flag} = False")] if flag else []
        call = self._line(f"{NAME}.while_stmt({ask}, {step}, {get}, {put}, {told}, "
                          f"{later!r})")  # fmt: skip
        return [ast.copy_location(m, node) for m in (*first, *made, call)]

    def visit_For(self, node: ast.For) -> Any:
        body, flag = self._flags(node)
        if body is None:
            return self.generic_visit(node)
        later = self._later(node)
        over, item = self.visit(node.iter), "ag__f_item"
        take = self._line(f"x = {item}")
        take.targets = [node.target]
        names, places = _stored([take, *body]), _places([take, *body])
        step = self._unique("body")
        made, get, put, told = self._accessors(names, places)
        made.append(self._def(step, [take, *self._block(body)], names, item))
        go_on = f"lambda: {NAME}.not_({flag})" if flag else "None"
        first = [self._line(f"{flag} = False")] if flag else []
        call = self._line(f"{NAME}.for_stmt(0, {step}, {get}, {put}, {told}, "
                          f"{later!r}, {go_on})")  # fmt: skip
        call.value.args[0] = over
        return [ast.copy_location(m, node) for m in (*first, *made, call)]

    def _later(self, node: ast.stmt) -> list[str]:
        """The names that are read after a loop."""
        end = node.end_lineno or 0
        return sorted({n.id for n in self.loads if n.lineno > end and not n.id.startswith(NAME)})

    def _flags(self, node: Any) -> tuple[Any, str]:
        """The body with ``break`` and ``continue`` as flags, and the flag of ``break``; None where
        the loop has to stay Python's."""
        if node.orelse or _has(node.body, ast.Return):
            return None, ""
        if not _has(node.body, (ast.Break, ast.Continue), into_loops=False):
            return node.body, ""
        if _has(node.body, ast.Match):
            return None, ""
        self.count += 1
        stop = f"ag__break{self.count}" if _has(node.body, ast.Break, into_loops=False) else ""
        skip = f"ag__skip{self.count}"
        return [self._line(f"{skip} = False"), *_lowered(node.body, stop, skip)], stop

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        found = self.visit(node.values[0])
        word = "and_" if isinstance(node.op, ast.And) else "or_"
        for value in node.values[1:]:
            call = self._line(f"{NAME}.{word}(lambda: 0, lambda: 0)").value
            call.args[0].body, call.args[1].body = found, self.visit(value)
            found = call
        return ast.copy_location(found, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        call = self._line(f"{NAME}.not_(0)").value
        call.args[0] = node.operand
        return ast.copy_location(call, node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1 or not all(isinstance(c, (ast.Name, ast.Constant))
                                         for c in node.comparators[:-1]):  # fmt: skip
            return node
        parts = [node.left, *node.comparators]
        pairs: list[ast.expr] = [ast.Compare(a, [o], [b])
                                 for a, o, b in zip(parts, node.ops, parts[1:],
                                     strict=False)]  # fmt: skip
        return self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), pairs), node))

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        call = self._line(f"{NAME}.if_exp(0, lambda: 0, lambda: 0)").value
        call.args[0] = node.test
        call.args[1].body, call.args[2].body = node.body, node.orelse
        return ast.copy_location(call, node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        self.generic_visit(node)
        call = self._line(f"{NAME}.assert_(0, lambda: 0)")
        call.value.args[0] = node.test
        call.value.args[1].body = node.msg or ast.Constant("")
        return ast.copy_location(call, node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "globals", NAME):
            return node
        part = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(part, ast.Name) and part.id == NAME:
            return node
        call = self._line(f"{NAME}.call(0)").value
        call.args[0] = node.func
        node.func = ast.copy_location(call, node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node  # converted when it is called

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return node


def _ends(body: list) -> bool:
    """Whether a block always returns or raises."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise))


def _with_returns(body: list) -> list:
    """The block with what follows an ``if`` that returns inside of its branches."""
    for i, node in enumerate(body):
        if isinstance(node, (ast.With, ast.Try)) and _ends(node.body):
            node.body = _with_returns(node.body)
        if isinstance(node, ast.If) and _has([node], ast.Return):
            if _has([*node.body, *node.orelse], (ast.For, ast.While)) and not _plain_returns(node):
                return body
            rest = body[i + 1 :]
            node.body = _with_returns(_followed(node.body, rest))
            node.orelse = _with_returns(_followed(node.orelse, rest))
            return [*body[:i], node]
    return body


def _plain_returns(node: ast.If) -> bool:
    """Whether no ``return`` is inside of a loop."""
    loops = [n for n in _walk([node]) if isinstance(n, (ast.For, ast.While))]
    return not any(_has(n.body, ast.Return) for n in loops)


def _followed(body: list, rest: list) -> list:
    if _ends(body):
        return body
    end: list[ast.stmt] = [] if rest and _ends(rest) else [ast.Return(ast.Constant(None))]
    return [*body, *rest, *end]


def _lowered(body: list, stop: str, skip: str) -> list:
    out: list[ast.stmt] = []
    for i, node in enumerate(body):
        if isinstance(node, (ast.Break, ast.Continue)):
            flag = stop if isinstance(node, ast.Break) else skip
            lines = [f"{flag} = True"] + ([f"{skip} = True"] if flag == stop else [])
            return [*out, *(ast.copy_location(_parsed(text), node) for text in lines)]
        out.append(node)
        if isinstance(node, (ast.For, ast.While, *_SCOPES)):
            continue
        if _has([node], (ast.Break, ast.Continue), into_loops=False):
            _lower_within(node, stop, skip)
            rest = _lowered(body[i + 1 :], stop, skip)
            if rest:
                guard = ast.copy_location(_parsed(f"if not {skip}: pass"), rest[0])
                guard.body = rest
                out.append(guard)
            return out
    return out


def _lower_within(node: Any, stop: str, skip: str) -> None:
    for part in ("body", "orelse", "finalbody"):
        if getattr(node, part, None):
            setattr(node, part, _lowered(getattr(node, part), stop, skip))
    for handler in getattr(node, "handlers", ()):
        handler.body = _lowered(handler.body, stop, skip)


class _Reads(ast.NodeTransformer):
    """Has variables that a branch or a loop may leave without a value told where they are read."""

    def __init__(self, state: set[str]) -> None:
        self.state = state

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load) or node.id not in self.state:
            return node
        call = _parsed(f"{NAME}.read({node.id})").value
        return ast.copy_location(call, node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if "_get" in node.name and node.name.startswith("ag__f"):
            return node
        own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        if node.name.startswith("ag__f"):
            own = set()
        inner = _Reads(self.state - own)
        node.body = [inner.visit(n) for n in node.body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        node.body = _Reads(self.state - own).visit(node.body)
        return node


def do_not_convert(fn: Callable | None = None) -> Any:
    """Leave ``fn`` as it is."""
    if fn is None:
        return do_not_convert
    fn.ag_do_not_convert = True  # type: ignore[attr-defined]
    return fn
