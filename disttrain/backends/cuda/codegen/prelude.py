"""What every generated kernel may call: conversions, functions, folds, vectors, as CUDA C text.

No header is included, so that NVRTC needs no toolkit: float16 and bfloat16 are 16 bits that the
processor's own instructions convert (``NATIVE``). What has another meaning in CUDA's functions than
in the kernel language is written out: ``max`` and ``min`` keep nan, integers wrap.

Accuracy, as CUDA's manual has it, in units of the last place (float32, float64): division, square
root and fma correctly rounded; exp 2, 1; log 1, 1; log1p 1, 1; expm1 1, 1; tanh 2, 2; erf 2, 2;
sin and cos 2, 2; pow 4, 2. What is composed of these was measured on the host (6 million numbers
each, against float64 and long double): 1 / sqrt 1.5, 1.5; sigmoid 2.5, 2.3 with an exp that is
correctly rounded, and 4.5 (float32) with one that is off by one more place, 6.4 by two; below -88.7
it is 0 in float32, where the true value is subnormal.
"""

from __future__ import annotations

# What a host compiler has no instruction for; the tests put their own in its place.
NATIVE = """
#define DT_FN static __device__ __forceinline__
extern __shared__ __align__(16) unsigned char dt_shared[];
DT_FN float dt_from_float16(unsigned short x) {
  float y;
  asm("{cvt.f32.f16 %0, %1;}" : "=f"(y) : "h"(x));
  return y;
}
DT_FN unsigned short dt_to_float16(float x) {
  unsigned short y;
  asm("{cvt.rn.f16.f32 %0, %1;}" : "=h"(y) : "f"(x));
  return y;
}
DT_FN float dt_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Products of tiles on tensor cores: c (16 x 8) += a (16 x 16) b (16 x 8), by a whole warp; and
// four tiles of 8 x 8 out of shared memory, a row's address from each lane, as they lie or turned.
#define DT_MMA(name, kind) \\
  DT_FN void name(float* c, const unsigned* a, const unsigned* b) { \\
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." kind "." kind ".f32 " \\
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \\
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \\
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \\
  }
DT_MMA(dt_mma_float16, "f16")
DT_MMA(dt_mma_bfloat16, "bf16")
#define DT_TILES(name, how) \\
  DT_FN void name(unsigned* r, const void* row) { \\
    unsigned long long at; \\
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(row)); \\
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];" \\
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)at) : "memory"); \\
  }
DT_TILES(dt_tiles, "")
DT_TILES(dt_tiles_turned, ".trans")
static __device__ __noinline__ void dt_out_of_range(const char* name, long long at, long long n) {
  printf("disttrain: %s: index %lld is out of range for %lld rows\\n", name, at, n);
  asm("trap;");
}
static __device__ __noinline__ void dt_not_allowed(const char* what, double x) {
  printf("disttrain: %s %g is not allowed\\n", what, x);
  asm("trap;");
}
DT_FN unsigned short dt_to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned short y;
  asm("{cvt.rn.bf16.f32 %0, %1;}" : "=h"(y) : "f"(x));
  return y;
#else
  const unsigned b = __float_as_uint(x);
  return x != x ? (b >> 16) | 0x40 : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
#endif
}
"""

COMMON = """
typedef long long dt_i64;
typedef unsigned long long dt_u64;
DT_FN float dt_from_bfloat16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
DT_FN bool dt_from_bool(unsigned char x) { return x != 0; }
DT_FN int dt_from_int8(signed char x) { return x; }
DT_FN int dt_from_uint8(unsigned char x) { return x; }
DT_FN int dt_from_int16(short x) { return x; }
DT_FN int dt_from_int32(int x) { return x; }
DT_FN dt_i64 dt_from_int64(dt_i64 x) { return x; }
DT_FN float dt_from_float32(float x) { return x; }
DT_FN double dt_from_float64(double x) { return x; }
DT_FN unsigned char dt_to_bool(bool x) { return x; }
DT_FN signed char dt_to_int8(int x) { return (signed char)x; }
DT_FN unsigned char dt_to_uint8(int x) { return (unsigned char)x; }
DT_FN short dt_to_int16(int x) { return (short)x; }
DT_FN int dt_to_int32(int x) { return x; }
DT_FN dt_i64 dt_to_int64(dt_i64 x) { return x; }
DT_FN float dt_to_float32(float x) { return x; }
DT_FN double dt_to_float64(double x) { return x; }

// Integers wrap, as numpy's do.
DT_FN int dt_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
DT_FN int dt_sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
DT_FN int dt_mul(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
DT_FN dt_i64 dt_add(dt_i64 a, dt_i64 b) { return (dt_i64)((dt_u64)a + (dt_u64)b); }
DT_FN dt_i64 dt_sub(dt_i64 a, dt_i64 b) { return (dt_i64)((dt_u64)a - (dt_u64)b); }
DT_FN dt_i64 dt_mul(dt_i64 a, dt_i64 b) { return (dt_i64)((dt_u64)a * (dt_u64)b); }
DT_FN float dt_add(float a, float b) { return a + b; }
DT_FN double dt_add(double a, double b) { return a + b; }
DT_FN int dt_abs(int a) { return a < 0 ? dt_sub(0, a) : a; }
DT_FN dt_i64 dt_abs(dt_i64 a) { return a < 0 ? dt_sub((dt_i64)0, a) : a; }
DT_FN float dt_abs(float a) { return fabsf(a); }
DT_FN double dt_abs(double a) { return fabs(a); }
DT_FN int dt_fma(int a, int b, int c) { return dt_add(dt_mul(a, b), c); }
DT_FN dt_i64 dt_fma(dt_i64 a, dt_i64 b, dt_i64 c) { return dt_add(dt_mul(a, b), c); }
DT_FN float dt_fma(float a, float b, float c) { return fmaf(a, b, c); }
DT_FN double dt_fma(double a, double b, double c) { return fma(a, b, c); }

// nan if either is nan; maxnum: the first unless the second is larger.
template <class T> DT_FN T dt_max(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T> DT_FN T dt_min(T a, T b) { return (a < b || a != a) ? a : b; }
template <class T> DT_FN T dt_maxnum(T a, T b) { return b > a ? b : a; }

#define DT_REAL(name, f, d) \\
  DT_FN float dt_##name(float x) { return f(x); } \\
  DT_FN double dt_##name(double x) { return d(x); }
DT_REAL(exp, expf, exp)
DT_REAL(log, logf, log)
DT_REAL(log1p, log1pf, log1p)
DT_REAL(expm1, expm1f, expm1)
DT_REAL(tanh, tanhf, tanh)
DT_REAL(erf, erff, erf)
DT_REAL(sqrt, sqrtf, sqrt)
DT_REAL(sin, sinf, sin)
DT_REAL(cos, cosf, cos)
DT_REAL(floor, floorf, floor)
DT_REAL(ceil, ceilf, ceil)
DT_FN float dt_rsqrt(float x) { return 1.0f / sqrtf(x); }
DT_FN double dt_rsqrt(double x) { return 1.0 / sqrt(x); }
DT_FN float dt_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DT_FN double dt_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
DT_FN float dt_pow(float a, float b) { return powf(a, b); }
DT_FN double dt_pow(double a, double b) { return pow(a, b); }

// V elements in as few accesses of at most 16 bytes as there can be.
template <class T, int W> struct alignas(sizeof(T) * W) dt_vec { T v[W]; };
template <int V, class T> DT_FN void dt_fetch(T* to, const T* from) {
  constexpr int W = 16 / sizeof(T) < V ? 16 / sizeof(T) : V;
#pragma unroll
  for (int k = 0; k < V; k += W) {
    const dt_vec<T, W> q = *(const dt_vec<T, W>*)(from + k);
#pragma unroll
    for (int j = 0; j < W; ++j) to[k + j] = q.v[j];
  }
}
template <int V, class T> DT_FN void dt_store(T* to, const T* from) {
  constexpr int W = 16 / sizeof(T) < V ? 16 / sizeof(T) : V;
#pragma unroll
  for (int k = 0; k < V; k += W) {
    dt_vec<T, W> q;
#pragma unroll
    for (int j = 0; j < W; ++j) q.v[j] = from[k + j];
    *(dt_vec<T, W>*)(to + k) = q;
  }
}

// n / d for n < 2**31, by the multiplier and the shift that belong to d (plan.py: divider).
DT_FN unsigned dt_div(unsigned n, unsigned multiplier, unsigned shift) {
  return (__umulhi(n, multiplier) + n) >> shift;
}

// Folds, always in one order: in a butterfly over the lanes of a warp, which leaves the same result
// in each of them, then in another one over the results of the warps.
struct dt_fold_sum {
  static constexpr bool symmetric = true;
  template <class T> DT_FN T of(T a, T b) { return dt_add(a, b); }
};
struct dt_fold_max {
  static constexpr bool symmetric = false;
  template <class T> DT_FN T of(T a, T b) { return dt_max(a, b); }
};
struct dt_fold_min {
  static constexpr bool symmetric = false;
  template <class T> DT_FN T of(T a, T b) { return dt_min(a, b); }
};
struct dt_fold_maxnum {
  static constexpr bool symmetric = false;
  template <class T> DT_FN T of(T a, T b) { return dt_maxnum(a, b); }
};
template <class F, class T> DT_FN T dt_warp(T x) {
#pragma unroll
  for (int m = 16; m > 0; m >>= 1) x = F::of(x, __shfl_xor_sync(0xffffffffu, x, m));
  return F::symmetric ? x : __shfl_sync(0xffffffffu, x, 0);  // of 0 and -0, all take the same
}
template <class F, int V, class T> DT_FN T dt_lanes(T* x) {
#pragma unroll
  for (int m = V / 2; m > 0; m >>= 1)
#pragma unroll
    for (int j = 0; j < m; ++j) x[j] = F::of(x[j], x[j + m]);
  return x[0];
}
// Before and after __syncthreads: the warps leave their results in shared memory, and take all.
template <class F, class T> DT_FN void dt_leave(T x, T* slots) {
  x = dt_warp<F, T>(x);
  if ((threadIdx.x & 31) == 0) slots[threadIdx.x >> 5] = x;
}
template <class F, int WARPS, class T> DT_FN T dt_take(const T* slots, T none) {
  return dt_warp<F, T>((threadIdx.x & 31) < WARPS ? slots[threadIdx.x & 31] : none);
}
"""


def prelude(native: str = NATIVE) -> str:
    """The text that stands before kernels; ``native`` as above, or a host's own."""
    return native + COMMON
