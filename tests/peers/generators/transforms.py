"""Random compositions of transforms (vmap, grad, vjp, jvp, Jacobians, linearize) over functions
drawn from a table of operations.

Left out is what is wrong in PyTorch 2.13: second derivatives of norms of batches, determinants,
solve and ``polar``; ``roll`` without dimensions and ``select_scatter`` in vmap. And points where
a derivative is not defined. ``linearize`` stands next to the function, and what it gave is not
differentiated: PyTorch's forgets there how it depends on the primals.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

ELEMENTWISE = """
x.sin() x.exp() x.tanh() x.sigmoid() (x*x+1).log() (x*x+0.5).sqrt() x.neg() x.square() x.pow(3)
x.clamp(-0.5,0.7) x.clamp_min(0.1) x.relu() F.gelu(x) F.gelu(x,approximate="tanh") F.silu(x)
F.elu(x) F.softplus(x) F.mish(x) F.leaky_relu(x,0.1) F.hardtanh(x) F.hardswish(x)
F.hardsigmoid(x) F.logsigmoid(x) F.tanhshrink(x) F.softsign(x) F.celu(x) F.selu(x)
F.softshrink(x,0.2) x.erf() x.expm1() (x*x).log1p() x.atan() x.asinh() x.cosh() x.sinh()
T.special.ndtr(x) T.atan2(x,x*x+1) T.hypot(x,x+2) T.logaddexp(x,x*2) T.maximum(x,x*x)
T.fmin(x,x*x) T.where(x>0,x*2,x.sin()) T.lerp(x,x*x,0.3) T.lerp(x,x.cos(),x.sin())
T.addcmul(x,x,x,value=0.5) T.addcdiv(x,x,x*x+1) x/(x*x+1) x-2*x.flip(-1) x.copysign(x.cos())
T.nan_to_num(x) x.deg2rad() x*x.mean() x+x.sum()
""".split()
SHAPES = """
x.cumsum(-1) x.cumsum(0) x.cummin(0).values x.softmax(-1) x.log_softmax(0) F.softmin(x,0)
x.sort(-1)[0] x.sort(0,descending=True).values x.flip(0) x.roll(1,-1)
x.rot90(1,[0,-1]) x.T x.mT x.transpose(0,-1) x.movedim(0,-1) x.swapdims(0,-1) x.unsqueeze(1)
x.squeeze() x.reshape(-1) x.flatten() x.view(-1) x.diff(dim=-1) x[...,1:] x[...,::2] x[0] x[-1]
x[:,None] x[None] x[...,[0,2]] x[[1,0]] x[...,T.tensor([2,0,1])]
x.index_select(-1,T.tensor([0,2,2])) x.gather(-1,T.tensor([1,0]).expand(*x.shape[:-1],2))
x.take(T.tensor([0,3])) x.take_along_dim(x.argsort(-1),-1) x.repeat_interleave(2,-1)
x.repeat(2,*[1]*(x.ndim-1)) x.tile(2) x.expand(2,*x.shape) x.narrow(-1,1,2) x.select(-1,1)
x.unfold(-1,2,1) x.chunk(2,-1)[0] x.split([1,2],-1)[1] T.cat([x,x*2],-1) T.stack([x,x.sin()],-1)
T.hstack([x,x]) x.unbind(-1)[1] x.diagonal(0,0,-1) T.diag_embed(x) x.diag() F.pad(x,(1,2))
F.pad(x,(1,1),value=2.0) F.normalize(x,dim=-1) F.rms_norm(x,x.shape[-1:])
F.glu(T.cat([x,x],-1),-1) x.masked_fill(x>0.3,0.5) x.index_fill(-1,T.tensor([1]),2.0)
x.index_add(-1,T.tensor([0]),x[...,:1]) x.scatter_add(-1,T.ones(x.shape,dtype=T.int64),x*2)
x.scatter_reduce(-1,T.zeros(x.shape,dtype=T.int64),x,"amax")
x.slice_scatter(x[...,:1]*3,-1,0,1) x.topk(2,-1)[0] x.kthvalue(2,-1).values x.clone().mul_(2)
x.clone().add_(x) x.clone().clamp_(min=0.2) x.clone().index_fill_(-1,T.tensor([0]),1.5)
x.clone().masked_fill_(x<0,1.0) x.clone().zero_()+x x.clone().sin_() x.clone().copy_(x*2)
T.clone(x).transpose(0,-1).mul_(3) x.unflatten(-1,(1,-1))
T.meshgrid(x.reshape(-1)[:2],x.reshape(-1)[:3],indexing="ij")[0]
T.combinations(x.reshape(-1)[:3]) T.block_diag(x,x) T.bucketize(x,T.tensor([0.,.5]).double())*x
""".split()
REDUCTIONS = """
x.sum() x.sum(-1) x.sum(0,keepdim=True) x.mean(-1) x.mean() x.var() x.var(-1)
T.var_mean(x,-1)[0] x.norm(float("inf"),-1) x.max() x.min(-1)[0] x.max(0).values x.amax(-1)
x.amin() x.aminmax(dim=-1).max x.median() x.median(-1).values x.nanmedian() x.quantile(0.3)
x.quantile(T.tensor([.2,.7]).double(),-1) x.logsumexp(-1) x.nansum(-1) x.mode(-1)[0] x.trace()
T.trapezoid(x,dim=-1) T.cumulative_trapezoid(x,dim=-1) T.cov(x)
T.dot(x.reshape(-1),x.reshape(-1)) x@x.mT x.mT@x T.matmul(x,x.reshape(-1)[:x.shape[-1]])
T.einsum("...i,...j->...ij",x,x) T.outer(x.reshape(-1)[:2],x.reshape(-1)[:3]) T.inner(x,x)
T.tensordot(x,x,([-1],[-1])) T.kron(x,x) T.linalg.inv(x@x.mT+T.eye(x.shape[-2]).double())
T.linalg.cholesky(x@x.mT+T.eye(x.shape[-2]).double()) T.linalg.matrix_power(x@x.mT,3)
T.linalg.matrix_norm(x) T.linalg.multi_dot([x,x.mT,x])
T.linalg.cross(x[...,:3],x[...,:3]*x[...,:3]) T.fft.rfft(x).real T.fft.irfft(T.fft.rfft(x))
T.fft.fft2(x).imag T.view_as_real(T.complex(x,x.sin())) (x*1j).exp().real
F.conv1d(x.reshape(1,1,-1),x.reshape(-1)[:2].reshape(1,1,2))
F.conv2d(x.reshape(1,1,-1,1),x.reshape(-1)[:2].reshape(1,1,2,1),padding=1)
F.conv_transpose1d(x.reshape(1,1,-1),x.reshape(-1)[:2].reshape(1,1,2))
F.max_pool1d(x.reshape(1,1,-1),2) F.avg_pool1d(x.reshape(1,1,-1),2)
F.adaptive_avg_pool1d(x.reshape(1,1,-1),2) F.adaptive_max_pool1d(x.reshape(1,1,-1),2)
F.lp_pool1d(x.reshape(1,1,-1),2.0,2)
F.interpolate(x.reshape(1,1,-1),scale_factor=2.0,mode="linear")
F.interpolate(x.reshape(1,1,-1),scale_factor=2.0,mode="nearest") F.mse_loss(x,x*2+1)
F.l1_loss(x,x*x) F.smooth_l1_loss(x,x*x) F.huber_loss(x,x*x)
F.kl_div(x.log_softmax(-1),x.softmax(-1),reduction="sum")
F.nll_loss(x.reshape(1,-1),T.tensor([0])) F.gaussian_nll_loss(x,x*2,x*x+1)
F.poisson_nll_loss(x,x*x) F.hinge_embedding_loss(x,T.ones(x.shape).double())
F.soft_margin_loss(x,T.ones(x.shape).double())
F.margin_ranking_loss(x,x*2,T.ones(x.shape).double()) F.triplet_margin_loss(x,x*2,x.sin())
F.multi_margin_loss(x.reshape(1,-1),T.tensor([0])) F.linear(x,x)
F.bilinear(x,x,T.ones(2,x.shape[-1],x.shape[-1]).double()) F.embedding(T.tensor([0,1]),x)
F.local_response_norm(x.reshape(1,2,-1),2) F.pairwise_distance(x,x*2+1)
T.searchsorted(x.detach().sort(-1)[0],x)*x T.addmm(x@x.mT,x,x.mT)
T.baddbmm((x@x.mT)[None],x[None],x.mT[None])
T.addmv(x@x.reshape(-1)[:x.shape[-1]],x,x.reshape(-1)[:x.shape[-1]]) T.chain_matmul(x,x.mT)
F.unfold(x.reshape(1,1,2,-1),(1,2)) F.fold(x.reshape(1,2,-1)[...,:2],(1,3),(1,2))
""".split()
CHAIN = "vmap vmap vmap grad grad jvp jvp vjp jacrev jacfwd linearize".split()
SIZES = ((2, 3), (3, 3), (2, 3, 4), (2, 2, 3, 4))


@dataclass(frozen=True)
class Program:
    """``texts`` one after the other on x, inside the transforms of ``chain``, innermost first."""

    seed: int
    texts: tuple[str, ...]
    chain: tuple[tuple, ...]
    shape: tuple[int, ...]

    @property
    def x(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        return np.round(rng.uniform(-1, 1, self.shape), 3) + rng.uniform(-1e-3, 1e-3, self.shape)


def draw(seed: int) -> Program:
    """The program of that seed."""
    r = random.Random(seed)
    texts = [r.choice(r.choice([ELEMENTWISE, SHAPES, REDUCTIONS]))]
    if r.random() < 0.5:
        texts.insert(0, r.choice(ELEMENTWISE))
    if r.random() < 0.3:
        texts.append(r.choice(r.choice([ELEMENTWISE, SHAPES])))
    kinds: list[str] = []
    for _ in range(r.choice([1, 1, 2, 2, 3])):
        kind = r.choice(CHAIN)
        whole = kind.startswith("jac") and any(k.startswith("jac") for k in kinds)
        late = bool(kinds) if kind == "linearize" else "linearize" in kinds and kind != "vmap"
        if not whole and not late:
            kinds.append(kind)
    chain = [(k, r.choice([0, 0, 1, -1]), r.choice([0, 0, -1])) for k in kinds]
    return Program(seed, tuple(texts), tuple(chain), r.choice(SIZES))


def run(program: Program, library: ModuleType) -> Any:
    """What it gives as an array, or the exception that it raised."""
    codes = [compile(text, "<program>", "eval") for text in program.texts]
    names = {"T": library, "F": library.nn.functional}

    def fn(x: Any) -> Any:
        for code in codes:
            x = eval(code, {**names, "x": x})
        return x

    for step in program.chain:
        fn = _inside(library.func, fn, *step)
    try:
        found = fn(library.tensor(program.x, dtype=library.float64))
        return found.detach().numpy()
    except Exception as error:
        return error.with_traceback(None)


def _inside(func: ModuleType, fn: Any, kind: str, place: int, out: int) -> Any:
    if kind == "vmap":
        return func.vmap(fn, in_dims=place, out_dims=out)
    if kind == "grad":
        return func.grad(lambda x: fn(x).sum())
    if kind == "jvp":
        return lambda x: func.jvp(fn, (x,), (x.cos(),))[1]
    if kind == "linearize":
        return lambda x: func.linearize(fn, x)[1](x.cos())
    if kind == "vjp":
        return lambda x: _pulled(*func.vjp(fn, x))
    return getattr(func, kind)(fn)


def _pulled(out: Any, pull: Any) -> Any:
    return pull(out)[0]
