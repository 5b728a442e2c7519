"""The backward passes that devices do by one kernel: equal to the host's, and few launches;
composed where they are to be derived again."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain.core import grad


def gradients(fn, arrays, device, again=False):
    given = [dt.tensor(a).to(device).requires_grad_() for a in arrays]
    out = fn(*given)
    seed = dt.ones_like(out) * 0.5
    found = grad([out], given, [seed], create_graph=again)
    return [f.detach().cpu().numpy() for f in found], found


def numbers(*shapes):
    rng = np.random.default_rng(4)
    return [rng.normal(size=s).astype("f4") for s in shapes]


CASES = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), [(3, 5, 8), (8,), (8,)]),
    "plain_layer_norm": (lambda x: F.layer_norm(x, (8,)), [(3, 5, 8)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (8,), w), [(3, 5, 8), (8,)]),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        [(4, 3, 2, 5), (3,), (3,)],
    ),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)]),
    "plain_group_norm": (lambda x: F.instance_norm(x), [(3, 4, 2, 5)]),
    "plain_batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [(7, 3)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 2)],
    ),
    "long_attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        [(2, 6, 4), (2, 9, 4), (2, 9, 4)],
    ),
    "attention_of_turned_arrays": (  # nor does their gradient lie in rows
        lambda q, k, v: (
            F.scaled_dot_product_attention(q.mT, k.mT, v.mT).sum(-1, True).expand(2, 6, 3)
        ),
        [(2, 4, 6), (2, 4, 9), (2, 4, 9)],
    ),
    "attention_of_shared_heads": (
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=0.3, enable_gqa=True
        ),
        [(2, 4, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3)],
    ),
    "attention_with_added_mask": (
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask),
        [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 3), (3, 1, 7)],
    ),
    "attention_that_a_row_sees_nothing_of": (
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, dt.tensor([[True] * 7, [False] * 7, [True, False] * 3 + [True]]).to(q.device)
        ),
        [(2, 3, 4), (2, 7, 4), (2, 7, 3)],
    ),
    "attention_to_nothing": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        [(2, 6, 4), (2, 0, 4), (2, 0, 4)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_host(double, name):
    fn, shapes = CASES[name]
    arrays = numbers(*shapes)
    want = gradients(fn, arrays, "cpu")[0]
    for again in (False, True):
        for g, w in zip(gradients(fn, arrays, "cuda", again)[0], want, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "attention"])
def test_few_launches(double, name):
    fn, shapes = CASES[name]
    given = [dt.tensor(a).to("cuda").requires_grad_() for a in numbers(*shapes)]
    out = fn(*given)
    seed = dt.ones_like(out)
    double.counts.clear()
    grad([out], given, [seed])
    assert double.counts.launches + double.counts.codes <= 4
    assert not double.counts.waits and not double.counts.unordered


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", ["batch_norm", "layer_norm", "rms_norm", "group_norm"])
def test_half_types_are_rounded_once(double, name, again):
    fn, shapes = CASES[name]
    shapes = [(40 * shapes[0][0], *shapes[0][1:]), *shapes[1:]]
    arrays = [dt.tensor(a).to(dt.bfloat16) for a in numbers(*shapes)]
    want = gradients(fn, [a.double().numpy() for a in arrays], "cpu")[0]
    given = [a.to("cuda").requires_grad_() for a in arrays]
    out = fn(*given)
    found = grad([out], given, [dt.ones_like(out) * 0.5], create_graph=again)
    for g, w in zip(found, want, strict=True):
        off = g.detach().double().cpu().numpy() - w
        assert np.sqrt(np.mean(off**2)) < 4e-3 * np.sqrt(np.mean(w**2)) + 2e-3


def test_attention_keeps_its_result_and_drops(double):
    q, k, v = (dt.tensor(a).to("cuda").requires_grad_() for a in numbers(*[(2, 3, 64, 8)] * 3))
    out = F.scaled_dot_product_attention(q, k, v)
    with dt.no_grad():
        out.mul_(2)
    with pytest.raises(RuntimeError, match="changed in-place"):
        out.sum().backward()
    ones = dt.ones_like(v)
    dropped = F.scaled_dot_product_attention(q, k, ones, dropout_p=0.25)
    assert dropped.std().item() > 0.01 and abs(dropped.mean().item() - 1) < 0.1
    dropped.sum().backward()
    assert q.grad.isfinite().all().item()
