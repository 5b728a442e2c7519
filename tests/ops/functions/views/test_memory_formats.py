"""In which order tensors lie."""

from __future__ import annotations

import pytest

import disttrain as dt

X = dt.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)


def test_strides():
    assert X.stride() == (60, 20, 5, 1) and X.stride(1) == 20
    assert X.is_contiguous() and not X.transpose(0, 1).is_contiguous()


def test_channels_last():
    last = X.contiguous(memory_format=dt.channels_last)
    assert last.stride() == (60, 1, 15, 3) and last.tolist() == X.tolist()
    assert last.is_contiguous(memory_format=dt.channels_last) and not last.is_contiguous()
    assert (last * 2).stride() == last.stride()  # results lie as what they are made of
    assert last.contiguous().stride() == X.stride()


def test_clones_keep_the_order_unless_told():
    turned = X.permute(1, 3, 0, 2)
    assert turned.clone().stride() == turned.stride()
    assert turned.clone(memory_format=dt.contiguous_format).is_contiguous()
    assert dt.empty_like(turned).stride() == turned.stride()


def test_what_is_contiguous_is_itself():
    assert X.contiguous() is X and X.T.contiguous() is not X


def test_channels_last_needs_four_dimensions():
    with pytest.raises((RuntimeError, ValueError)):
        dt.ones(2, 3).contiguous(memory_format=dt.channels_last)


def layers_of_images():
    """Name, what is called, whether an image or a volume goes in."""
    F = dt.nn.functional
    w, t, w3 = dt.rand(3, 4, 2, 2), dt.rand(4, 3, 2, 2), dt.rand(3, 4, 2, 2, 2)
    return [
        ("conv2d", lambda x: F.conv2d(x, w), 2),
        ("conv_transpose2d", lambda x: F.conv_transpose2d(x, t), 2),
        ("conv3d", lambda x: F.conv3d(x, w3), 3),
        ("max_pool2d", lambda x: F.max_pool2d(x, 2), 2),
        ("max_pool3d", lambda x: F.max_pool3d(x, 2), 3),
        ("avg_pool2d", lambda x: F.avg_pool2d(x, 2), 2),
        ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (4, 3)), 2),
        ("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (4, 3)), 2),
        ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), 2),
        ("group_norm", lambda x: F.group_norm(x, 2), 2),
        ("bilinear", lambda x: F.interpolate(x, size=(3, 9), mode="bilinear"), 2),
        ("antialias", lambda x: F.interpolate(x, size=4, mode="bicubic", antialias=True), 2),
        ("nearest", lambda x: F.interpolate(x, scale_factor=2), 2),
        ("trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), 3),
    ]


@pytest.mark.parametrize(("name", "fn", "n"), layers_of_images(), ids=lambda v: str(v)[:20])
def test_layers_of_images_keep_the_format(name, fn, n):
    order = dt.channels_last if n == 2 else dt.channels_last_3d
    plain = dt.rand(2, 4, *(7,) * n, requires_grad=True)
    last = plain.detach().to(memory_format=order).requires_grad_()
    want, got = fn(plain), fn(last)
    assert want.is_contiguous() and got.is_contiguous(memory_format=order)
    assert dt.allclose(got, want, atol=1e-6)
    for out in (want, got):
        out.square().sum().backward()
    assert dt.allclose(last.grad, plain.grad, atol=1e-4)
    compiled = dt.compile(fn)
    for _ in range(2):
        with dt.no_grad():
            again = compiled(last)
            assert dt.equal(again, fn(last)) and again.stride() == got.stride()


def test_a_convolution_follows_its_weights_too():
    w = dt.rand(3, 4, 2, 2).to(memory_format=dt.channels_last)
    out = dt.nn.functional.conv2d(dt.rand(2, 4, 5, 5), w)
    assert out.is_contiguous(memory_format=dt.channels_last)
    assert dt.conv1d(dt.rand(2, 4, 5).permute(0, 1, 2), dt.rand(3, 4, 2)).is_contiguous()


def test_memory_of_another_size_lies_in_the_format_that_is_asked_for():
    x = dt.arange(24.0).resize_(1, 2, 3, 4, memory_format=dt.channels_last)
    assert x.is_contiguous(memory_format=dt.channels_last)
    like = dt.empty(2, 3, 2, 2, memory_format=dt.channels_last)
    y = dt.zeros(24).resize_as_(like, memory_format=dt.preserve_format)
    assert y.stride() == like.stride()


def test_copies_of_parts_keep_the_order_of_what_they_are_parts_of():
    assert dt.ones(10, 8).t()[::2, ::2].clone().stride() == (1, 4)
