"""The CUDA C of attention of half types on tensor cores (mma.sync m16n8k16, sm_80 and later).

A warp has 16 queries (keys, for dk and dv); products of 16-bit tiles are added up in float32. Tiles
lie in shared memory in rows of 8 more elements than they have, so that eight rows meet in no bank.
Fragments: element (g, 2t) and (g, 2t + 1) of a tile of 8 rows belong to lane 4 g + t.
"""

from __future__ import annotations

ROWS = 64  # queries (keys) of a block
TILE = 32  # keys (queries) that pass by at a time in the backward pass; twice as many forward

_BEGIN = """
  typedef unsigned short T;
  constexpr int DP = $dp, EP = $ep, LD = DP + 8, LE = EP + 8, ROWS = 64;
  const float none = dt_minus_infinity(0.0f), scale = (float)a.scale;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int edge = lane & 7, half = (lane >> 3) & 1, far = lane >> 4;  // of ldmatrix's four tiles
#if $dropped
  const float again = 1.0f / a.keep;
#endif
  auto pack = [&](float x, float y) {
    return (unsigned)dt_to_$dtype(x) | (unsigned)dt_to_$dtype(y) << 16;
  };
  // ``count`` rows from ``start`` on, zero where there are none; by 16 bytes where they lie so.
  auto share = [&](T* to, const T* from, dt_i64 stride, dt_i64 start, dt_i64 end, int n, int wide,
                   int count) {
    const bool whole = (((dt_u64)from | (dt_u64)(stride * 2)) & 15) == 0 && n % 8 == 0;
    for (int x = threadIdx.x; x < count * (wide / 8); x += 128) {
      const int r = x / (wide / 8), c = x % (wide / 8) * 8;
      T* const here = to + r * (wide + 8) + c;
      const T* const there = from + (start + r) * stride + c;
      T v[8];
      if (whole && start + r < end && c < n) dt_fetch<8>(v, there);
      else
        for (int j = 0; j < 8; ++j) v[j] = start + r < end && c + j < n ? there[j] : (T)0;
      dt_store<8>(here, v);
    }
  };
  // Rows ``at`` to at + 15, columns c to c + 15, as the left factor of a product.
  auto left = [&](unsigned* r, const T* from, int ld, int at, int c) {
    dt_tiles(r, from + (at + half * 8 + edge) * ld + c + far * 8);
  };
  // Rows n to n + 15 as columns of the right factor; columns c to c + 15 are what is summed over.
  auto columns = [&](unsigned* r, const T* from, int ld, int n, int c) {
    dt_tiles(r, from + (n + far * 8 + edge) * ld + c + half * 8);
  };
  // Rows k to k + 15 are what is summed over; columns c to c + 15 are those of the right factor.
  auto rows = [&](unsigned* r, const T* from, int ld, int k, int c) {
    dt_tiles_turned(r, from + (k + half * 8 + edge) * ld + c + far * 8);
  };
"""
_QUERY = """
  const dt_i64 tiles = (a.length + ROWS - 1) / ROWS, bh = blockIdx.x / tiles;
  const dt_i64 b = bh / a.heads, h = bh % a.heads, kh = h / a.per;
  const dt_i64 from = blockIdx.x % tiles * ROWS, own = from + warp * 16 + g;
  const dt_i64 last = $causal && from + ROWS < a.keys ? from + ROWS : a.keys;
  const T* const keys = (const T*)a.k + b * a.k0 + kh * a.k1;
  const T* const values = (const T*)a.v + b * a.v0 + kh * a.v1;
  const T* const queries = (const T*)a.q + b * a.q0 + h * a.q1;
  const dt_u64 parts = (a.keys + 3) / 4;
"""
FORWARD = (
    _BEGIN
    + _QUERY
    + """
  T* const ks = (T*)dt_shared;
  T* const vs = ks + 64 * LD;
  unsigned q[DP / 16][4];
  share(ks, queries, a.q2, from, a.length, a.d, DP, 64);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < DP / 16; ++k) left(q[k], ks, LD, warp * 16, k * 16);
  float o[EP / 8][4], most[2] = {none, none}, total[2] = {0, 0};
  for (int n = 0; n < EP / 8; ++n)
    for (int j = 0; j < 4; ++j) o[n][j] = 0;
  for (dt_i64 start = 0; start < last; start += 64) {
    __syncthreads();
    share(ks, keys, a.k2, start, a.keys, a.d, DP, 64);
    share(vs, values, a.v2, start, a.keys, a.e, EP, 64);
    __syncthreads();
    float p[8][4];
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      for (int j = 0; j < 4; ++j) p[n][j] = p[n + 1][j] = 0;
#pragma unroll
      for (int k = 0; k < DP / 16; ++k) {
        unsigned r[4];
        columns(r, ks, LD, n * 8, k * 16);
        dt_mma_$dtype(p[n], q[k], r);
        dt_mma_$dtype(p[n + 1], q[k], r + 2);
      }
    }
    float here[2] = {most[0], most[1]};
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const dt_i64 key = start + n * 8 + t * 2 + (j & 1), i = own + (j >> 1) * 8;
        float s = p[n][j] * scale;
        if (key >= a.keys || ($causal && key > i) || i >= a.length) s = none;
        else {$mask
        }
        p[n][j] = s;
        here[j >> 1] = fmaxf(here[j >> 1], s);
      }
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      float m = here[x];
      m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
      m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
      const float by = m == none ? 0.0f : m, old = dt_exp2((most[x] - by) * DT_LOG2E);
      most[x] = m;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int j = 2 * x; j < 2 * x + 2; ++j) {
          p[n][j] = dt_exp2((p[n][j] - by) * DT_LOG2E);
          sum += p[n][j];
        }
      total[x] = dt_fma(total[x], old, sum);
#pragma unroll
      for (int n = 0; n < EP / 8; ++n) o[n][2 * x] *= old, o[n][2 * x + 1] *= old;
#if $dropped
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const dt_i64 key = start + n * 8 + t * 2;
        const dt_u64 row = bh * a.length + own + x * 8;
        const dt_words w = dt_philox(row * parts + key / 4, a.offset, a.seed);
        for (int j = 0; j < 2; ++j)
          p[n][2 * x + j] = dt_kept(w, (int)(key & 3) + j, a.keep) ? p[n][2 * x + j] * again : 0.0f;
      }
#endif
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float(*const w)[4] = p + 2 * k;
      unsigned l[4] = {pack(w[0][0], w[0][1]), pack(w[0][2], w[0][3]), pack(w[1][0], w[1][1]),
                       pack(w[1][2], w[1][3])};
#pragma unroll
      for (int n = 0; n < EP / 16; ++n) {
        unsigned r[4];
        rows(r, vs, LE, k * 16, n * 16);
        dt_mma_$dtype(o[2 * n], l, r);
        dt_mma_$dtype(o[2 * n + 1], l, r + 2);
      }
    }
  }
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    float sum = total[x];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const dt_i64 i = own + x * 8;
    const float by = sum == 0 ? 0.0f : 1.0f / sum;
    if (i >= a.length) continue;
    T* const out = (T*)a.out + b * a.o0 + h * a.o1 + i * a.o2;
#pragma unroll
    for (int n = 0; n < EP / 8; ++n)
      for (int j = 0; j < 2; ++j)
        if (n * 8 + t * 2 + j < a.e) out[n * 8 + t * 2 + j] = dt_to_$dtype(o[n][2 * x + j] * by);
    if (t == 0) ((float*)a.lse)[bh * a.length + i] = sum == 0 ? none : most[x] + logf(sum);
  }
"""
)
# From the products ``s`` and ``dp`` of query i and key ``key`` to the weight p and the gradient ds.
_WEIGHT = """
        float s = p[n][j] * scale, times = 1.0f;
        const float dp = ds[n][j];
        p[n][j] = ds[n][j] = 0.0f;
        if (!(key >= a.keys || ($causal && key > i) || i >= a.length) && lse != none) {$mask
          const float w = s == none ? 0.0f : dt_exp2((s - lse) * DT_LOG2E);
#if $dropped
          const dt_u64 row = bh * a.length + i;
          const dt_words words = dt_philox(row * parts + key / 4, a.offset, a.seed);
          times = dt_kept(words, (int)(key & 3), a.keep) ? again : 0.0f;
#endif
          p[n][j] = w * times;
          ds[n][j] = w * (dp * times - delta);
        }
"""
# Two products of 16 rows of left tiles with 32 of right ones: into ``p`` and ``ds``.
_PRODUCTS = """
#pragma unroll
      for (int n = 0; n < 4; ++n)
        for (int j = 0; j < 4; ++j) p[n][j] = ds[n][j] = 0;
#pragma unroll
      for (int k = 0; k < DP / 16; ++k) {
        unsigned l[4], r[4];
        left(l, $first, LD, warp * 16, k * 16);
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
          columns(r, $second, LD, n * 8, k * 16);
          dt_mma_$dtype(p[n], l, r);
          dt_mma_$dtype(p[n + 1], l, r + 2);
        }
      }
#pragma unroll
      for (int k = 0; k < EP / 16; ++k) {
        unsigned l[4], r[4];
        left(l, $third, LE, warp * 16, k * 16);
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
          columns(r, $fourth, LE, n * 8, k * 16);
          dt_mma_$dtype(ds[n], l, r);
          dt_mma_$dtype(ds[n + 1], l, r + 2);
        }
      }
"""
# ``$sum`` += ``$weights`` (16 x 32) times the rows of ``$tile``.
_COLLECT = """
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float(*const w)[4] = $weights + 2 * k;
        unsigned l[4] = {pack(w[0][0], w[0][1]), pack(w[0][2], w[0][3]), pack(w[1][0], w[1][1]),
                         pack(w[1][2], w[1][3])};
#pragma unroll
        for (int n = 0; n < $wide / 16; ++n) {
          unsigned r[4];
          rows(r, $tile, $wide + 8, k * 16, n * 16);
          dt_mma_$dtype($sum[2 * n], l, r);
          dt_mma_$dtype($sum[2 * n + 1], l, r + 2);
        }
      }
"""
_GIVE = """
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const dt_i64 at = own + x * 8;
    if (at >= $end) continue;
    T* const out = $to + at * $stride;
#pragma unroll
    for (int n = 0; n < $wide / 8; ++n)
      for (int j = 0; j < 2; ++j)
        if (n * 8 + t * 2 + j < $count)
          out[n * 8 + t * 2 + j] = dt_to_$dtype($sum[n][2 * x + j] * $by);
  }
"""


def _put(text: str, **names: str) -> str:
    for name, value in names.items():
        text = text.replace(f"${name}", value)
    return text


QUERIES = (
    _BEGIN
    + _QUERY
    + """
  T* const qs = (T*)dt_shared;
  T* const gs = qs + 64 * LD;
  T* const ks = gs + 64 * LE;
  T* const vs = ks + 32 * LD;
  share(qs, queries, a.q2, from, a.length, a.d, DP, 64);
  share(gs, (const T*)a.g + b * a.g0 + h * a.g1, a.g2, from, a.length, a.e, EP, 64);
  float d[DP / 8][4], sums[2], deltas[2];
  for (int n = 0; n < DP / 8; ++n)
    for (int j = 0; j < 4; ++j) d[n][j] = 0;
  for (int x = 0; x < 2; ++x) {
    const bool there = own + x * 8 < a.length;
    sums[x] = there ? ((const float*)a.lse)[bh * a.length + own + x * 8] : none;
    deltas[x] = there ? ((const float*)a.delta)[bh * a.length + own + x * 8] : 0.0f;
  }
  for (dt_i64 start = 0; start < last; start += 32) {
    __syncthreads();
    share(ks, keys, a.k2, start, a.keys, a.d, DP, 32);
    share(vs, values, a.v2, start, a.keys, a.e, EP, 32);
    __syncthreads();
    float p[4][4], ds[4][4];
    {"""
    + _put(_PRODUCTS, first="qs", second="ks", third="gs", fourth="vs")
    + """
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const dt_i64 key = start + n * 8 + t * 2 + (j & 1), i = own + (j >> 1) * 8;
        const float lse = sums[j >> 1], delta = deltas[j >> 1];
"""
    + _WEIGHT
    + "      }"
    + _put(_COLLECT, weights="ds", wide="DP", tile="ks", sum="d")
    + """
    }
  }
"""
    + _put(
        _GIVE, end="a.length", to="((T*)a.dq + b * a.dq0 + h * a.dq1)", stride="a.dq2", wide="DP",
        count="a.d", sum="d", by="scale",
    )
)  # fmt: skip
KEYS = (
    _BEGIN
    + """
  const dt_i64 tiles = (a.keys + ROWS - 1) / ROWS, bg = blockIdx.x / tiles;
  const dt_i64 groups = a.heads / a.per, b = bg / groups, kh = bg % groups;
  const dt_i64 from = blockIdx.x % tiles * ROWS, own = from + warp * 16 + g;
  const dt_u64 parts = (a.keys + 3) / 4;
  T* const ks = (T*)dt_shared;
  T* const vs = ks + 64 * LD;
  T* const qs = vs + 64 * LE;
  T* const gs = qs + 32 * LD;
  float* const sums = (float*)(gs + 32 * LE);
  share(ks, (const T*)a.k + b * a.k0 + kh * a.k1, a.k2, from, a.keys, a.d, DP, 64);
  share(vs, (const T*)a.v + b * a.v0 + kh * a.v1, a.v2, from, a.keys, a.e, EP, 64);
  float dk[DP / 8][4], dv[EP / 8][4];
  for (int n = 0; n < DP / 8; ++n)
    for (int j = 0; j < 4; ++j) dk[n][j] = 0;
  for (int n = 0; n < EP / 8; ++n)
    for (int j = 0; j < 4; ++j) dv[n][j] = 0;
  for (dt_i64 h = kh * a.per; h < (kh + 1) * a.per; ++h) {
    const dt_i64 bh = b * a.heads + h;
    const T* const queries = (const T*)a.q + b * a.q0 + h * a.q1;
    const T* const slopes = (const T*)a.g + b * a.g0 + h * a.g1;
    for (dt_i64 start = $causal ? from / 32 * 32 : 0; start < a.length; start += 32) {
      __syncthreads();
      share(qs, queries, a.q2, start, a.length, a.d, DP, 32);
      share(gs, slopes, a.g2, start, a.length, a.e, EP, 32);
      if (threadIdx.x < 32) {
        const bool inside = start + threadIdx.x < a.length;
        const dt_i64 row = bh * a.length + start + threadIdx.x;
        sums[threadIdx.x] = inside ? ((const float*)a.lse)[row] : none;
        sums[32 + threadIdx.x] = inside ? ((const float*)a.delta)[row] : 0.0f;
      }
      __syncthreads();
      float p[4][4], ds[4][4];
"""
    + _put(_PRODUCTS, first="ks", second="qs", third="vs", fourth="gs")
    + """
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = n * 8 + t * 2 + (j & 1);
        const dt_i64 i = start + c, key = own + (j >> 1) * 8;
        const float lse = sums[c], delta = sums[32 + c];
"""
    + _WEIGHT
    + "      }"
    + _put(_COLLECT, weights="p", wide="EP", tile="gs", sum="dv")
    + _put(_COLLECT, weights="ds", wide="DP", tile="qs", sum="dk")
    + """
    }
  }
"""
    + _put(
        _GIVE, end="a.keys", to="((T*)a.dk + b * a.dk0 + kh * a.dk1)", stride="a.dk2", wide="DP",
        count="a.d", sum="dk", by="scale",
    )
    + _put(
        _GIVE, end="a.keys", to="((T*)a.dv + b * a.dv0 + kh * a.dv1)", stride="a.dv2", wide="EP",
        count="a.e", sum="dv", by="1.0f",
    )
)  # fmt: skip

__all__ = ["FORWARD", "KEYS", "QUERIES", "ROWS", "TILE"]
