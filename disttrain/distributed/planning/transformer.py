"""What one layer of a transformer computes, moves and keeps: counted from its dimensions.

Products are those of Vaswani et al. (2017) with grouped queries, gated feed-forwards, experts
(Fedus et al., 2021) and low-rank queries and keys (DeepSeek-V2, 2024). What the backward needs is
counted as in Korthikanti et al. (arXiv:2205.05198). Pure arithmetic; knows no machine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ...errors import ConfigError


@dataclass(frozen=True)
class Product:
    """A matrix product ``tokens x k`` by ``k x n``; ``cut``: the side that tensor parallelism
    divides ("n", "k" or ""). ``of``: how many experts share it, ``each``: how many a token uses."""

    n: int
    k: int
    cut: str = ""
    of: int = 1
    each: int = 1

    @property
    def weights(self) -> int:
        return self.n * self.k * self.of


# Dimensions that mean nothing without another one.
_BELONG = {
    **dict.fromkeys(("top_k", "expert_ffn", "shared_ffn", "dense_layers"), "experts"),
    **dict.fromkeys(("q_rank", "rope_dim"), "kv_rank"),
}


@dataclass(frozen=True)
class Transformer:
    """The dimensions. ``kv_heads``, ``head_dim``, ``ffn``: 0 for ``heads``, ``hidden / heads`` and
    ``4 hidden``. ``experts``: of each layer behind the first ``dense_layers``, of which a token
    uses ``top_k``, each ``expert_ffn`` wide, beside one of ``shared_ffn`` for all. ``kv_rank``: of
    keys and values that are kept in a low rank (then ``q_rank`` and ``rope_dim`` count, too).
    ``window``: keys that every second layer sees (0: all)."""

    layers: int
    hidden: int
    heads: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    gated: bool = False
    tied: bool = True
    positions: int = 0
    biases: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    window: int = 0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, bool):
                continue
            least = 1 if f.name in ("layers", "hidden", "heads", "vocab") else 0
            if not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"model: {f.name}={value!r} given; needed is a whole number, {least} or more"
                )
        if not self.head_dim and self.hidden % self.heads:
            raise ConfigError(
                f"model: hidden={self.hidden} does not divide into heads={self.heads}; "
                "say head_dim, too"
            )
        if self.heads % self.groups:
            raise ConfigError(f"model: kv_heads={self.kv_heads} does not divide heads={self.heads}")
        for name, of in _BELONG.items():
            if getattr(self, name) and not getattr(self, of):
                raise ConfigError(f"model: {name}={getattr(self, name)} given without {of}")
        if self.dense_layers > self.layers:
            raise ConfigError(
                f"model: dense_layers={self.dense_layers} given, of layers={self.layers}"
            )
        if self.experts and not (1 <= self.top_k <= self.experts and self.expert_ffn):
            raise ConfigError(
                f"model: experts={self.experts} needs top_k from 1 to that and expert_ffn"
            )

    @property
    def dim(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def score_dim(self) -> float:
        """Columns of the two products of a score, on average: positions of low-rank queries and
        keys have columns of their own."""
        return self.dim + (self.rope_dim / 2 if self.kv_rank else 0)

    @property
    def groups(self) -> int:
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        return self.ffn or 4 * self.hidden

    @cached_property
    def attention(self) -> tuple[Product, ...]:
        h, d, a = self.hidden, self.dim, self.heads
        out = Product(h, a * d, "k")
        if self.kv_rank:
            down = Product(self.q_rank + self.kv_rank + self.rope_dim, h)
            queries = Product(a * (d + self.rope_dim), self.q_rank or h, "n")
            return down, queries, Product(2 * a * d, self.kv_rank, "n"), out
        return Product((a + 2 * self.groups) * d, h, "n"), out

    @cached_property
    def dense(self) -> tuple[Product, ...]:
        return self._feed_forward(self.width)

    @cached_property
    def sparse(self) -> tuple[Product, ...]:
        """The feed-forward of a layer with experts."""
        shared = self._feed_forward(self.shared_ffn) if self.shared_ffn else ()
        routed = self._feed_forward(self.expert_ffn, self.experts, self.top_k)
        return Product(self.experts, self.hidden), *shared, *routed

    def _feed_forward(self, width: int, of: int = 1, each: int = 1) -> tuple[Product, ...]:
        up = width * (2 if self.gated else 1)
        return (
            Product(up, self.hidden, "n", of, each),
            Product(self.hidden, width, "k", of, each),
        )

    def is_sparse(self, layer: int) -> bool:
        return self.experts > 0 and layer >= self.dense_layers

    def products(self, sparse: bool) -> tuple[Product, ...]:
        return self.attention + (self.sparse if sparse else self.dense)

    def layer_weights(self, sparse: bool, tensor: int = 1, expert: int = 1) -> int:
        """Elements of a layer on one rank."""
        total = 0.0
        for p in self.products(sparse):
            parts = (tensor if p.cut else 1) * (expert if p.of > 1 else 1)
            total += p.weights // parts
            if self.biases:
                total += p.n // (tensor if p.cut == "n" else 1)
        return int(total) + (4 if self.biases else 2) * self.hidden

    @property
    def embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def weights(self) -> int:
        """Elements of the whole model."""
        layers = sum(self.layer_weights(self.is_sparse(i)) for i in range(self.layers))
        ends = self.embedding * (1 if self.tied else 2) + self.positions * self.hidden
        return layers + ends + self.hidden

    def flops(self, seq: int) -> float:
        """Of one token, forward and backward, by the usual count: each weight that it meets six
        times, scores of all keys of the sequence. What is computed again does not count."""
        used = float(self.embedding)
        for i in range(self.layers):
            used += sum(p.n * p.k * p.each for p in self.products(self.is_sparse(i)))
        seen = float(self.layers * seq)
        if self.window:
            seen = self.layers / 2 * (seq + min(seq, self.window))
        return 6.0 * used + 12.0 * seen * self.heads * self.score_dim


def transformer_of(table: dict[str, Any]) -> Transformer:
    """From a table of a TOML file. Raises ``ConfigError`` for what is no dimension."""
    known = {f.name for f in fields(Transformer)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(
            f"model: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )
    missing = [n for n in ("layers", "hidden", "heads", "vocab") if n not in table]
    if missing:
        raise ConfigError(
            f"model: {missing[0]} is missing; needed are layers, hidden, heads, vocab"
        )
    flags = {f.name for f in fields(Transformer) if f.type == "bool"}
    for name, value in table.items():
        if isinstance(value, bool) != (name in flags):
            kind = "true or false" if name in flags else "a whole number"
            raise ConfigError(f"model: {name}={value!r} given; needed is {kind}")
    return Transformer(**table)
