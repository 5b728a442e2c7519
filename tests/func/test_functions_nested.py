"""A program's own Function in nestings of transforms, against the same maths written plainly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain import func
from disttrain.autograd import Function


class Inner(Function):
    """g * x.cos() * y * y: what the backward of the others calls."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y, g):
        return g * x.cos() * y * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, h):
        x, y, g = ctx.saved_tensors
        return -h * g * x.sin() * y * y, h * g * x.cos() * 2 * y, h * x.cos() * y * y

    @staticmethod
    def jvp(ctx, tx, ty, tg):
        x, y, g = ctx.saved_tensors
        return tg * x.cos() * y * y - tx * g * x.sin() * y * y + ty * g * x.cos() * 2 * y


class Generated(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x.sin() * y * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return Inner.apply(x, y, g), g * x.sin() * 2 * y

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return tx * x.cos() * y * y + ty * x.sin() * 2 * y


class OwnBatch(Generated):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, dims, x, y):
        rows = [
            v.expand(info.batch_size, *v.shape) if d is None else v.movedim(d, 0)
            for v, d in zip((x, y), dims, strict=True)
        ]
        return OwnBatch.apply(*rows), 0


class SavesItsResult(Function):
    """The same, whose derivatives are taken from the result that it has saved."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x.sin() * y * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, y, out = ctx.saved_tensors
        return g * out / x.tan(), g * out * 2 / y

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y, out = ctx.saved_tensors
        return tx * out / x.tan() + ty * out * 2 / y


def plain(x, y):
    return x.sin() * y * y


SEED = dt.tensor([0.5, -1.5, 2.0], dtype=dt.float64)


def pulled(f):
    def of(x, y):
        _, pull = func.vjp(f, x, y)
        one, other = pull(SEED)
        return one + other * 0.5

    return of


TRANSFORMS = {
    "grad": lambda f: lambda x, y: func.grad(lambda a: (f(a, y) * SEED).sum())(x),
    "grad of both": lambda f: lambda x, y: func.grad(lambda b: f(x * b, b).sin().sum())(y),
    "vjp": pulled,
    "jvp": lambda f: lambda x, y: func.jvp(f, (x, y), (SEED, SEED * 0.3))[1],
    "jvp of one": lambda f: lambda x, y: sum(func.jvp(lambda a: f(a, y * a), (x,), (y,))),
    "vmap": lambda f: lambda x, y: func.vmap(f)(x[None], y[None])[0],
    "vmap of one": lambda f: lambda x, y: func.vmap(f, in_dims=(0, None))(x[None], y)[0],
}


@pytest.mark.parametrize("cls", [Generated, OwnBatch, SavesItsResult])
@pytest.mark.parametrize("first", TRANSFORMS)
def test_nested_transforms_of_a_function(cls, first):
    x = dt.tensor([0.3, -0.7, 1.1], dtype=dt.float64)
    y = dt.tensor([1.2, 0.4, -0.9], dtype=dt.float64)
    for more in (*itertools.product(TRANSFORMS), *itertools.product(TRANSFORMS, ("jvp", "vmap"))):
        mine, other = cls.apply, plain
        for name in (first, *more):
            mine, other = TRANSFORMS[name](mine), TRANSFORMS[name](other)
        np.testing.assert_allclose(
            mine(x, y).numpy(), other(x, y).numpy(), rtol=1e-9, err_msg=f"{first}, {more}"
        )


def test_a_function_in_place_keeps_its_place_where_a_tape_follows_it():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return 2 * g

        @staticmethod
        def jvp(ctx, t):
            return t.mul_(2)

    def f(x):
        with dt.autograd.forward_ad.dual_level():
            dual = dt.autograd.forward_ad.make_dual(x * 1, dt.ones(2))
            out = Twice.apply(dual * 3)
            value, moved = dt.autograd.forward_ad.unpack_dual(out * out)
            return value, moved

    x = dt.tensor([1.0, 2.0], requires_grad=True)
    value, moved = f(x)
    assert value.tolist() == [36.0, 144.0] and moved.tolist() == [72.0, 144.0]
    (grad,) = dt.autograd.grad(value.sum(), x)
    assert grad.tolist() == [72.0, 144.0]


def test_a_function_in_place_inside_vjp_inside_jvp():
    class Twice(Function):
        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * g

        @staticmethod
        def jvp(ctx, t):
            return t.mul_(2)

    def f(x):
        y = x * 3
        Twice.apply(y)
        return y * y

    x, one = dt.tensor([1.0, 2.0]), dt.ones(2)
    value, moved = func.jvp(lambda x: func.vjp(f, x)[1](one)[0], (x,), (one,))
    assert value.tolist() == [72.0, 144.0] and moved.tolist() == [72.0, 72.0]
