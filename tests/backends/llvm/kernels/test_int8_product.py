"""Code for products of 8-bit integers: every way that this processor can run gives the same."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from disttrain.backends import host
from disttrain.backends.addresses import address
from disttrain.backends.llvm.kernels import int8_product as code

RUNNABLE = [n for n, way in code.WAYS.items() if host.cpu().features.issuperset(way.needs)]


def test_the_best_way_is_taken_and_others_with_fewer_features(monkeypatch):
    known = {
        frozenset("avx2 avx512f avx512bw avx512_vnni avx_vnni".split()): "dot512",
        frozenset("avx2 avx512f avx512bw".split()): "pairs512",
        frozenset("avx2 avx_vnni".split()): "dot256",
        frozenset(["avx2", "fma"]): "pairs256",
        frozenset(["sse2"]): None,
    }
    for features, wanted in known.items():
        monkeypatch.setattr(host, "cpu", lambda f=features: host.Cpu("", f, ""))
        code.way.cache_clear()
        assert code.way() == wanted
    monkeypatch.undo()
    code.way.cache_clear()


@pytest.mark.parametrize("way", RUNNABLE)
def test_products_are_exact(way):
    run, rng = code.product(way, False), np.random.default_rng(0)
    if run is None:
        pytest.skip("no machine code here")
    block = code.WAYS[way].block
    for m, n, k in itertools.product((1, 5, 70), (1, 4, 7), (block, block + 1, 3 * block - 1)):
        x = rng.integers(0, 256, (m, k)).astype(np.uint8)
        w = rng.integers(-128, 128, (n, k)).astype(np.int8)
        x[0], w[0] = 255, -128  # nothing may saturate
        laid, y = code.blocks(x, code.padded(way, k), block), np.empty((m, n), np.int32)
        strides = y.strides[0], laid.strides[0], w.strides[0]
        run(address(y), address(laid), address(w), m, n, k, *strides)
        assert np.array_equal(y, x.astype(np.int64) @ w.T.astype(np.int64)), (m, n, k)


@pytest.mark.parametrize(
    ("way", "cpu", "instruction"),
    [
        ("pairs256", "haswell", "vpmaddwd"), ("pairs512", "skylake-avx512", "vpmaddwd"),
        ("dot256", "alderlake", "vpdpbusd"), ("dot512", "icelake-server", "vpdpbusd"),
    ],
)  # fmt: skip
def test_processors_have_the_instructions_of_their_way(way, cpu, instruction):
    """Made for a processor that has no more than its way needs; no C function is called."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=cpu, opt=3, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(code._text(way, True))
    module.verify()
    text = machine.emit_assembly(module)
    assert text.count(instruction) >= 16 and ("zmm" in text) == way.endswith("512")
    assert set(re.findall(r"(\w+)@PLT", text)) <= {"levels", "product"}


def test_blocks_have_what_is_left_at_their_end():
    x = np.arange(1, 11, dtype=np.uint8).reshape(2, 5)
    assert code.blocks(x, 8, 4).tolist() == [[1, 2, 3, 4, 0, 0, 0, 5], [6, 7, 8, 9, 0, 0, 0, 10]]
    assert code.blocks(x[:, :4], 4, 4).flags.c_contiguous


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_integers_are_widened(lanes):
    run, rng = code.widened(lanes, 2), np.random.default_rng(1)
    if run is None:
        pytest.skip("no machine code here")
    for n, k in ((1, lanes), (5, lanes + 3), (9, 3 * lanes)):
        x, w = rng.normal(size=(2, k)).astype("f4"), rng.integers(-128, 128, (n, k)).astype("i1")
        scale, y = rng.uniform(0.5, 1, n).astype("f4"), np.empty((2, n), np.float32)
        laid = code.blocks(x, -(-k // lanes) * lanes, lanes)
        strides = y.strides[0], laid.strides[0], w.strides[0]
        run(address(y), address(laid), address(w), address(scale), n, k, *strides)
        np.testing.assert_allclose(y, x @ w.T.astype("f4") * scale, 1e-4, 1e-3)
