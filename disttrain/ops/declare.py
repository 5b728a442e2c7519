"""How a primitive is declared: once, with all its rules.

    mul = binary("mul", np.multiply, da=lambda g, b: g * b, db=lambda g, a: g * a,
                 expr=lambda a, b: a * b)

A derivative rule names what it reads: ``g`` (the cotangent), ``out`` (the result), arguments,
parameters, ``needs`` (which arguments' gradients are wanted), ``a_shape`` (the shape of argument
``a``, free of cost, when ``a`` is the one differentiated). What no rule names is not saved. Rules
run on raw arrays in an ordinary backward and on Tensors otherwise, so they use operators that mean
the same on both, and primitives; broadcasting is undone by the engine.

What is derived, not written:

* jvp of an elementwise primitive (its Jacobian is diagonal, so the vjp rules serve), of a linear
  one (``jvp="linear"``: apply it to the tangents), of a multilinear one (``jvp="multilinear"``:
  one argument at a time); otherwise by transposing the vjp (see ``func``);
* the batch rule of an elementwise primitive (align the batch dimension in front);
* the shape rule of an elementwise primitive (broadcast shapes, promote types).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..core.annotations import BatchRule, Jvp, Promotion, Rule, Samples, ShapeRule
from ..core.gate import Primitive
from ..core.node import AccumulateGrad
from ..symbolic import common_shape
from .promotion import float_args, only, same_type_args

REGISTRY: dict[str, Primitive] = {}


def _register(prim: Primitive) -> Primitive:
    assert prim.name not in REGISTRY, f"primitive {prim.name} declared twice"
    REGISTRY[prim.name] = prim
    return prim


def primitive(
    name: str,
    forward: Rule,
    args: str,
    *,
    vjp: dict[str, Rule] | Rule | None = None,
    jvp: Jvp | Literal["linear", "multilinear"] | None = None,
    batch: BatchRule | None = None,
    shape: ShapeRule | None = None,
    expr: Rule | None = None,
    multi: bool = False,
    view: bool = False,
    promote: Promotion | None = None,
    mutates: tuple[int, ...] = (),
    nondiff_outputs: tuple[int, ...] = (),
    random: bool = False,
    samples: Samples | None = None,
    reads: dict[str, str] | None = None,
    own_result: bool = False,
    shard: Rule | None = None,
    kind: type[Primitive] = Primitive,
) -> Primitive:
    """Declare a primitive.

    ``forward(*args, **params)`` works on numpy arrays. ``args`` names the positional ones (empty
    when there are any number of them; then ``vjp`` is one rule and may not name them).
    ``vjp`` is a rule per argument name, or one rule that returns a tuple with a gradient (or None)
    per argument. ``shape(*args, **params)`` gets arrays with ``shape`` and ``dtype`` and returns
    (shape, dtype), a list of them when ``multi``. ``mutates``: positions of arguments that
    ``forward`` writes to (then nothing is recorded). ``samples(rng)``: a list of
    (args, params) for the tests of all rules. ``reads``: where one rule serves all arguments,
    which arguments the gradient of each reads (others may be missing then). ``own_result``: that
    the rule reads the result is not for the user to know, who may write to it. ``shard(*args,
    **params)``: how dimensions belong together (a ``layouts.Layout``), for sharded arrays; an
    elementwise primitive has one. ``kind``: a class of its own.
    """
    prim = kind(name, forward, tuple(args.split()))
    prim.jvp, prim.batch, prim.shape, prim.expr = jvp, batch, shape, expr
    prim.multi, prim.view, prim.promote, prim.mutates = multi, view, promote, mutates
    prim.nondiff_outputs, prim.random, prim.samples = nondiff_outputs, random, samples
    if vjp is not None:
        _set_vjp(prim, vjp, reads)
    prim.own_result, prim.shard = own_result, shard
    prim.simple = len(prim.args) == 1 and not (multi or mutates or promote or random)
    return _register(prim)


def unary(
    name: str,
    forward: Rule,
    d: Rule | None = None,
    *,
    expr: Rule | None = None,
    floating: bool = False,
    out_bool: bool = False,
    takes: str | None = None,
    promote: Promotion | None = None,
    samples: Samples | None = None,
) -> Primitive:
    """Declare an elementwise function of one tensor; ``d`` is its vjp rule. ``floating``: integer
    input is converted to the default floating type. ``takes``: numpy's kinds that it is defined
    for (None: all)."""
    promote = promote or (float_args if floating else None)
    prim = primitive(
        name,
        forward,
        "a",
        vjp={"a": d} if d else None,
        shape=lambda a: (a.shape, np.dtype(bool) if out_bool else a.dtype),
        expr=expr,
        promote=only(name, takes, promote) if takes else promote,
        samples=samples,
    )
    prim.elementwise, prim.takes = True, takes
    return prim


def binary(
    name: str,
    forward: Rule,
    da: Rule | None = None,
    db: Rule | None = None,
    *,
    expr: Rule | None = None,
    floating: bool = False,
    out_bool: bool = False,
    takes: str | None = None,
    promote: Promotion | None = None,
    samples: Samples | None = None,
) -> Primitive:
    """Declare an elementwise function of two tensors (or a tensor and a scalar), broadcasting.
    ``takes``: numpy's kinds, of the operands' common type, that it is defined for (None: all)."""
    promote = promote or (float_args if floating else same_type_args)
    rules = {k: r for k, r in (("a", da), ("b", db)) if r}
    prim = primitive(
        name,
        forward,
        "a b",
        vjp=rules or None,
        shape=lambda a, b: (broadcast(a, b), np.dtype(bool) if out_bool else type_of(a, b)),
        expr=expr,
        promote=only(name, takes, promote) if takes else promote,
        samples=samples,
    )
    prim.elementwise, prim.takes = True, takes
    return prim


def broadcast(*args: object) -> tuple[int, ...]:
    """The common shape of arrays and scalars."""
    return common_shape(*(getattr(a, "shape", ()) for a in args))


def type_of(*args: object) -> np.dtype:
    """The numpy type of the first array among ``args``."""
    return next(a.dtype for a in args if hasattr(a, "dtype"))


def _set_vjp(prim: Primitive, vjp: Rule | dict[str, Rule], reads: dict[str, str] | None) -> None:
    prim.differentiable = True
    if callable(vjp):
        names = _names(vjp)
        read = names[1:]  # the first is the cotangent, whatever the arguments are called
        per_arg = [reads[a].split() if reads else read for a in prim.args]
        prim.saves = tuple(
            tuple(i for i, b in enumerate(prim.args) if b in wanted) for wanted in per_arg
        )
        prim.saves_out = "out" in names
        prim.out_bits = -1 if prim.saves_out else 0
        prim.vjp_all = _adapt(prim, vjp, names)
    else:
        rules, saves = [], []
        for a in prim.args:
            rule = vjp.get(a)
            names = _names(rule) if rule else ()
            rules.append(_adapt(prim, rule, names) if rule else _no_gradient)
            saves.append(tuple(i for i, b in enumerate(prim.args) if b in names[1:]))
            prim.saves_out = prim.saves_out or "out" in names
            prim.out_bits |= ("out" in names) << len(saves) - 1
        prim.rules, prim.saves = tuple(rules), tuple(saves)
    prim.save_bits = [sum(1 << j for j in s) for s in prim.saves]


def _no_gradient(
    g: object, out: object, values: list | tuple, node: object, needs: object = None
) -> None:
    """The rule of an argument that has no gradient (an index, a mask)."""


def _names(rule: Rule) -> tuple[str, ...]:
    code = rule.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _adapt(prim: Primitive, rule: Rule, names: tuple[str, ...]) -> Rule:
    """Call ``rule`` with what it names. The common forms are spelled out for speed."""
    args = prim.args
    rest = [n for n in names if n != "g"]
    assert names and names[0] == "g", f"{prim.name}: the first name of a rule must be g"
    if not rest:
        return lambda g, out, values, node, needs=None: rule(g)
    if all(n in args for n in rest):
        where = [args.index(n) for n in rest]
        if len(where) == 1:
            i = where[0]
            return lambda g, out, values, node, needs=None: rule(g, values[i])
        return lambda g, out, values, node, needs=None: rule(g, *[values[i] for i in where])
    if rest == ["out"]:
        return lambda g, out, values, node, needs=None: rule(g, out)
    getters = [_getter(n, args) for n in rest]

    def general(
        g: object, out: object, values: list | tuple, node: object, needs: tuple | None = None
    ) -> Any:
        return rule(g, *[get(out, values, node, needs) for get in getters])

    return general


def _place_of(node: Any, i: int) -> Any:
    """Where the gradient of argument ``i`` will lie in the end, if that is known and the rule may
    write it there: (an array, the factor that the whole gradient is multiplied by), or None."""
    edge = node.edges[i]
    if edge.__class__ is not AccumulateGrad or edge.place is None or node.post_hooks:
        return None
    return edge.place()


def _getter(name: str, args: tuple[str, ...]) -> Rule:
    if name == "out":
        return lambda out, values, node, needs: out
    if name == "needs":
        return lambda out, values, node, needs: needs
    if name in args:
        i = args.index(name)
        return lambda out, values, node, needs: values[i]
    if name.endswith("_place") and name[:-6] in args:
        i = args.index(name[:-6])
        return lambda out, values, node, needs: _place_of(node, i)
    if name.endswith("_shape") and name[:-6] in args:
        i = args.index(name[:-6])
        return lambda out, values, node, needs: node.input_shape(i)
    return lambda out, values, node, needs: node.params.get(name)


def declare_apart(
    name: str, forward: Rule, args: str, vjp: dict[str, Rule] | Rule,
    node_class: type | None = None, kind: type[Primitive] = Primitive,
) -> Any:  # fmt: skip
    """Declare a primitive that is no part of the vocabulary: its forward takes arrays of all kinds
    as they are, and its rules know which. ``kind``: a class of its own."""
    prim = kind(name, forward, tuple(args.split()))
    prim.kinds, prim.node_class, prim.jvp = True, node_class, "linear"
    _set_vjp(prim, vjp, None)
    return prim
