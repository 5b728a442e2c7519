"""The CUDA C of attention by teams of threads; ``attention.py`` says how it is launched."""

from __future__ import annotations

HELPERS = """
// A team's threads each have every fourth run of four columns; sums leave the same in all of them.
template <int TEAM, class T> DT_FN T dt_team(T x) {
#pragma unroll
  for (int m = TEAM / 2; m > 0; m >>= 1) x = x + __shfl_xor_sync(0xffffffffu, x, m);
  return x;
}
template <int N, int TEAM, class T> DT_FN T dt_dot(const T* own, const T* row, int lane) {
  T sum = 0;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    T v[4];
    dt_fetch<4>(v, row + i * TEAM + lane * 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum = dt_fma(own[i + j], v[j], sum);
  }
  return sum;
}
template <int N, int TEAM, class T> DT_FN void dt_add_row(T* own, T by, const T* row, int lane) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    T v[4];
    dt_fetch<4>(v, row + i * TEAM + lane * 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) own[i + j] = dt_fma(by, v[j], own[i + j]);
  }
}
#define DT_LOG2E 1.44269504088896340736f
DT_FN float dt_minus_infinity(float) { return __uint_as_float(0xff800000u); }
DT_FN double dt_minus_infinity(double) { return __longlong_as_double(0xfff0000000000000ll); }
// Whether place ``key`` of a row is kept by dropout, by the counter of four places.
DT_FN bool dt_kept(dt_words w, int key, float keep) {
  const unsigned x = (key & 2) ? ((key & 1) ? w.w[3] : w.w[2]) : ((key & 1) ? w.w[1] : w.w[0]);
  return dt_unit(x, 24) < keep;
}
"""
MASKS = {
    "none": "",
    "bool": """
      if (!((const unsigned char*)a.mask)[b * a.m0 + h * a.m1 + i * a.m2 + key * a.m3])
        s = none;""",
    "added": """
      s = s + dt_from_$dtype(
          ((const $stored*)a.mask)[b * a.m0 + h * a.m1 + i * a.m2 + key * a.m3]);""",
}
# What queries and keys share: types, and the loading of rows into registers or shared memory.
_BEGIN = """
  typedef $wide W;
  typedef $stored T;
  constexpr int TEAM = $team, PD = $pd, PE = $pe, TILE = $tile, ROWS = $rows;
  constexpr int DP = PD * TEAM, EP = PE * TEAM;
  const W none = dt_minus_infinity(W());
#if $dropped
  const W again = (W)1 / (W)a.keep;
#endif
  const int lane = threadIdx.x % TEAM, own = threadIdx.x / TEAM;
  W* const first = (W*)dt_shared;
  W* const second = first + TILE * DP;
  auto take = [&](W* to, const T* row, int n, int each, bool there) {
    for (int i = 0; i < each; ++i) {
      const int c = i / 4 * TEAM * 4 + lane * 4 + i % 4;
      to[i] = there && c < n ? (W)dt_from_$dtype(row[c]) : (W)0;
    }
  };
  auto give = [&](T* row, const W* from, int n, int each, W by) {
    for (int i = 0; i < each; ++i) {
      const int c = i / 4 * TEAM * 4 + lane * 4 + i % 4;
      if (c < n) row[c] = dt_to_$dtype(from[i] * by);
    }
  };
  auto share = [&](W* to, const T* from, dt_i64 stride, dt_i64 start, dt_i64 end, int n, int wide) {
    for (int x = threadIdx.x; x < TILE * wide; x += 128) {
      const int r = x / wide, c = x % wide;
      const bool there = start + r < end && c < n;
      to[x] = there ? (W)dt_from_$dtype(from[(start + r) * stride + c]) : (W)0;
    }
  };
"""
_QUERY = """
  const dt_i64 tiles = (a.length + ROWS - 1) / ROWS, bh = blockIdx.x / tiles;
  const dt_i64 b = bh / a.heads, h = bh % a.heads, kh = h / a.per;
  const dt_i64 from = blockIdx.x % tiles * ROWS, i = from + own;
  const bool there = i < a.length;
  const dt_i64 last = $causal && from + ROWS < a.keys ? from + ROWS : a.keys;
  const T* const keys = (const T*)a.k + b * a.k0 + kh * a.k1;
  const T* const values = (const T*)a.v + b * a.v0 + kh * a.v1;
  const dt_u64 parts = (a.keys + 3) / 4, counter = (bh * a.length + i) * parts;
"""
FORWARD = (
    _BEGIN
    + _QUERY
    + """
  W q[PD], o[PE], most = none, total = 0;
  take(q, (const T*)a.q + b * a.q0 + h * a.q1 + i * a.q2, a.d, PD, there);
  for (int x = 0; x < PD; ++x) q[x] = q[x] * (W)a.scale;
  for (int x = 0; x < PE; ++x) o[x] = 0;
  for (dt_i64 start = 0; start < last; start += TILE) {
    __syncthreads();
    share(first, keys, a.k2, start, a.keys, a.d, DP);
    share(second, values, a.v2, start, a.keys, a.e, EP);
    __syncthreads();
#pragma unroll 1
    for (int c = 0; c < TILE; c += 8) {
      W p[8], here = most;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const dt_i64 key = start + c + j;
        W s = dt_team<TEAM>(dt_dot<PD, TEAM>(q, first + (c + j) * DP, lane));
        if (key >= a.keys || ($causal && key > i) || !there) s = none;
        else {$mask
        }
        p[j] = s;
        here = dt_max(here, s);
      }
      const W by = here == none ? (W)0 : here, old = dt_exp(most - by);
      W sum = 0;
      for (int j = 0; j < 8; ++j) sum = sum + (p[j] = dt_exp(p[j] - by));
      total = dt_fma(total, old, sum);
      most = here;
      for (int x = 0; x < PE; ++x) o[x] = o[x] * old;
#if $dropped
      for (int j = 0; j < 8; j += 4) {
        const dt_words w = dt_philox(counter + (start + c + j) / 4, a.offset, a.seed);
        for (int x = 0; x < 4; ++x) p[j + x] = dt_kept(w, x, a.keep) ? p[j + x] * again : (W)0;
      }
#endif
#pragma unroll
      for (int j = 0; j < 8; ++j) dt_add_row<PE, TEAM>(o, p[j], second + (c + j) * EP, lane);
    }
  }
  if (!there) return;
  T* const out = (T*)a.out + b * a.o0 + h * a.o1 + i * a.o2;
  give(out, o, a.e, PE, total == 0 ? (W)0 : (W)1 / total);
  if (lane == 0) ((W*)a.lse)[bh * a.length + i] = total == 0 ? none : most + dt_log(total);
"""
)
DELTA = """
  typedef $wide W;
  typedef $stored T;
  const dt_i64 row = (dt_i64)blockIdx.x * 4 + threadIdx.x / 32, i = row % a.length;
  const dt_i64 bh = row / a.length, b = bh / a.heads, h = bh % a.heads;
  const T* const g = (const T*)a.g + b * a.g0 + h * a.g1 + i * a.g2;
  const T* const o = (const T*)a.out + b * a.o0 + h * a.o1 + i * a.o2;
  const bool there = b < a.batch;
  W sum = 0;
  if (there)
    for (int c = threadIdx.x % 32; c < a.e; c += 32)
      sum = dt_fma((W)dt_from_$dtype(g[c]), (W)dt_from_$dtype(o[c]), sum);
  sum = dt_team<32>(sum);
  if (there && threadIdx.x % 32 == 0) ((W*)a.delta)[row] = sum;
"""
# The score's weight p and the gradient ds of the score, for query i and key ``key``: ``s`` and
# ``dp`` are products of rows.
_WEIGHT = """
        W p = 0, ds = 0, times = 1;
        if (!(key >= a.keys || ($causal && key > i) || i >= a.length) && lse != none) {$mask
          p = s == none ? (W)0 : dt_exp(s - lse);
#if $dropped
          const dt_words w = dt_philox(counter + key / 4, a.offset, a.seed);
          times = dt_kept(w, (int)(key & 3), a.keep) ? again : (W)0;
#endif
          ds = p * (dp * times - delta);
        }
"""
QUERIES = (
    _BEGIN
    + _QUERY
    + """
  W q[PD], g[PE], d[PD];
  take(q, (const T*)a.q + b * a.q0 + h * a.q1 + i * a.q2, a.d, PD, there);
  take(g, (const T*)a.g + b * a.g0 + h * a.g1 + i * a.g2, a.e, PE, there);
  for (int x = 0; x < PD; ++x) q[x] = q[x] * (W)a.scale, d[x] = 0;
  const W lse = there ? ((const W*)a.lse)[bh * a.length + i] : none;
  const W delta = there ? ((const W*)a.delta)[bh * a.length + i] : (W)0;
  for (dt_i64 start = 0; start < last; start += TILE) {
    __syncthreads();
    share(first, keys, a.k2, start, a.keys, a.d, DP);
    share(second, values, a.v2, start, a.keys, a.e, EP);
    __syncthreads();
#pragma unroll 1
    for (int c = 0; c < TILE; c += 4) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const dt_i64 key = start + c + j;
        W s = dt_team<TEAM>(dt_dot<PD, TEAM>(q, first + (c + j) * DP, lane));
        const W dp = dt_team<TEAM>(dt_dot<PE, TEAM>(g, second + (c + j) * EP, lane));
"""
    + _WEIGHT
    + """
        dt_add_row<PD, TEAM>(d, ds, first + (c + j) * DP, lane);
      }
    }
  }
  if (there) give((T*)a.dq + b * a.dq0 + h * a.dq1 + i * a.dq2, d, a.d, PD, (W)a.scale);
"""
)
KEYS = (
    _BEGIN
    + """
  const dt_i64 tiles = (a.keys + ROWS - 1) / ROWS, bg = blockIdx.x / tiles;
  const dt_i64 groups = a.heads / a.per, b = bg / groups, kh = bg % groups;
  const dt_i64 from = blockIdx.x % tiles * ROWS, key = from + own;
  const bool there = key < a.keys;
  const dt_u64 parts = (a.keys + 3) / 4;
  W* const sums = second + TILE * EP;
  W k[PD], v[PE], dk[PD], dv[PE];
  take(k, (const T*)a.k + b * a.k0 + kh * a.k1 + key * a.k2, a.d, PD, there);
  take(v, (const T*)a.v + b * a.v0 + kh * a.v1 + key * a.v2, a.e, PE, there);
  for (int x = 0; x < PD; ++x) dk[x] = 0;
  for (int x = 0; x < PE; ++x) dv[x] = 0;
  for (dt_i64 h = kh * a.per; h < (kh + 1) * a.per; ++h) {
    const dt_i64 bh = b * a.heads + h;
    const T* const queries = (const T*)a.q + b * a.q0 + h * a.q1;
    const T* const slopes = (const T*)a.g + b * a.g0 + h * a.g1;
    for (dt_i64 start = $causal ? from / TILE * TILE : 0; start < a.length; start += TILE) {
      __syncthreads();
      share(first, queries, a.q2, start, a.length, a.d, DP);
      share(second, slopes, a.g2, start, a.length, a.e, EP);
      if (threadIdx.x < TILE) {
        const bool inside = start + threadIdx.x < a.length;
        const dt_i64 row = bh * a.length + start + threadIdx.x;
        sums[threadIdx.x] = inside ? ((const W*)a.lse)[row] : none;
        sums[TILE + threadIdx.x] = inside ? ((const W*)a.delta)[row] : (W)0;
      }
      __syncthreads();
#pragma unroll 1
      for (int r = 0; r < TILE; ++r) {
        const dt_i64 i = start + r;
        const dt_u64 counter = (bh * a.length + i) * parts;
        const W lse = sums[r], delta = sums[TILE + r];
        W s = dt_team<TEAM>(dt_dot<PD, TEAM>(k, first + r * DP, lane)) * (W)a.scale;
        const W dp = dt_team<TEAM>(dt_dot<PE, TEAM>(v, second + r * EP, lane));
"""
    + _WEIGHT
    + """
        dt_add_row<PE, TEAM>(dv, p * times, second + r * EP, lane);
        dt_add_row<PD, TEAM>(dk, ds, first + r * DP, lane);
      }
    }
  }
  if (!there) return;
  give((T*)a.dk + b * a.dk0 + kh * a.dk1 + key * a.dk2, dk, a.d, PD, (W)a.scale);
  give((T*)a.dv + b * a.dv0 + kh * a.dv1 + key * a.dv2, dv, a.e, PE, (W)1);
"""
)
