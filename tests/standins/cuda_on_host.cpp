// CUDA's built-in names for a host compiler, so that generated kernels run without a GPU: blocks one
// after the other, the threads of a block as contexts that take turns at barriers and shuffles. Ends
// the process where threads of a block or of a warp wait at a barrier that others never reach.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define DT_FN static inline

struct dt_dim { unsigned x; };
static dt_dim threadIdx, blockIdx, gridDim;

static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline float sinpif(float x) { return (float)sin(M_PI * (double)x); }
static inline float cospif(float x) { return (float)cos(M_PI * (double)x); }
static inline double sinpi(double x) { return sin(M_PI * x); }
static inline double cospi(double x) { return cos(M_PI * x); }
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (unsigned __int128)a * b >> 64; }
struct uint4 { unsigned x, y, z, w; };
static void dt_out_of_range(const char* name, long long at, long long n) {
  fprintf(stderr, "%s: index %lld is out of range for %lld rows\n", name, at, n);
  abort();
}
static void dt_not_allowed(const char* what, double x) {
  fprintf(stderr, "%s %g is not allowed\n", what, x);
  abort();
}
alignas(16) static unsigned char dt_shared[232448];
static inline unsigned __umulhi(unsigned a, unsigned b) { return ((uint64_t)a * b) >> 32; }
static inline float dt_from_float16(unsigned short x) { _Float16 h; memcpy(&h, &x, 2); return h; }
static inline unsigned short dt_to_float16(float x) {
  _Float16 h = (_Float16)x;
  unsigned short y;
  memcpy(&y, &h, 2);
  return y;
}
static inline unsigned short dt_to_bfloat16(float x) {
  unsigned b;
  memcpy(&b, &x, 4);
  return x != x ? (b >> 16) | 0x40 : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
}

constexpr int MOST = 1024, STACK = 1 << 16;
struct dt_meeting { int here, turn; };
static ucontext_t home, threads[MOST];
static char* stacks;
static bool over[MOST];
static int count, now, moved;
static dt_meeting block_meeting, warp_meeting[MOST / 32];
static uint64_t slots[MOST];

static void meet(dt_meeting& m, int all) {
  const int turn = m.turn;
  moved = 1;
  if (++m.here == all) {
    m.here = 0;
    ++m.turn;
  }
  while (m.turn == turn) {
    const int me = now;
    swapcontext(&threads[me], &home);
  }
}
static void __syncthreads() { meet(block_meeting, count); }
static void __syncwarp() { meet(warp_meeting[now / 32], 32); }
template <class T> static T exchange(T x, int from) {
  const int me = now;
  memcpy(&slots[me], &x, sizeof(T));
  meet(warp_meeting[me / 32], 32);
  T y;
  memcpy(&y, &slots[me / 32 * 32 + from], sizeof(T));
  meet(warp_meeting[me / 32], 32);
  return y;
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int m) { return exchange(x, (now & 31) ^ m); }
template <class T> static T __shfl_sync(unsigned, T x, int from) { return exchange(x, from); }

// Tensor cores: every lane lays down its part, and takes what the whole product has at its places.
static inline float dt_exp2(float x) { return exp2f(x); }
static inline float dt_half_from_bfloat16(unsigned short x) {
  unsigned b = (unsigned)x << 16;
  float y;
  memcpy(&y, &b, 4);
  return y;
}
static unsigned parts_a[MOST][4], parts_b[MOST][2];
static const unsigned short* row_of[MOST];
static void multiply(float* c, const unsigned* a, const unsigned* b, float (*from)(unsigned short)) {
  const int me = now, first = me / 32 * 32, g = me % 32 / 4, t = me % 4;
  memcpy(parts_a[me], a, 16);
  memcpy(parts_b[me], b, 8);
  meet(warp_meeting[me / 32], 32);
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, col = 2 * t + i % 2;
    for (int k = 0; k < 16; ++k) {
      const unsigned x = parts_a[first + row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      const unsigned y = parts_b[first + col * 4 + k % 8 / 2][k / 8];
      c[i] += from(k & 1 ? x >> 16 : x & 0xffff) * from(k & 1 ? y >> 16 : y & 0xffff);
    }
  }
  meet(warp_meeting[me / 32], 32);
}
static void dt_mma_float16(float* c, const unsigned* a, const unsigned* b) {
  multiply(c, a, b, dt_from_float16);
}
static void dt_mma_bfloat16(float* c, const unsigned* a, const unsigned* b) {
  multiply(c, a, b, dt_half_from_bfloat16);
}
static void tiles(unsigned* r, const void* row, bool turned) {
  const int me = now, first = me / 32 * 32, g = me % 32 / 4, t = me % 4;
  row_of[me] = (const unsigned short*)row;
  if ((uintptr_t)row & 15) abort();
  meet(warp_meeting[me / 32], 32);
  for (int i = 0; i < 4; ++i) {
    const unsigned short* const* const m = row_of + first + 8 * i;
    const unsigned x = turned ? m[2 * t][g] : m[g][2 * t];
    const unsigned y = turned ? m[2 * t + 1][g] : m[g][2 * t + 1];
    r[i] = x | y << 16;
  }
  meet(warp_meeting[me / 32], 32);
}
static void dt_tiles(unsigned* r, const void* row) { tiles(r, row, false); }
static void dt_tiles_turned(unsigned* r, const void* row) { tiles(r, row, true); }

static void (*entry)(const void*);
static const void* argument;
static void start() {
  entry(argument);
  over[now] = true;
  moved = 1;
  setcontext(&home);
}
static void run_block(int n) {
  if (!stacks) stacks = (char*)malloc((size_t)MOST * STACK);
  count = n;
  for (int t = 0; t < n; ++t) {
    over[t] = false;
    getcontext(&threads[t]);
    threads[t].uc_stack = {stacks + (size_t)t * STACK, 0, STACK};
    threads[t].uc_link = &home;
    makecontext(&threads[t], start, 0);
  }
  for (int left = n; left;) {
    left = moved = 0;
    for (int t = 0; t < n; ++t) {
      if (over[t]) continue;
      now = threadIdx.x = t;
      swapcontext(&home, &threads[t]);
      left += !over[t];
    }
    if (left && !moved) {
      fprintf(stderr, "threads wait at a barrier that others never reach\n");
      abort();
    }
  }
}
static void launch(void (*f)(const void*), const void* a, unsigned grid, unsigned block, bool meets) {
  entry = f;
  argument = a;
  gridDim.x = grid;
  for (unsigned b = 0; b < grid; ++b) {
    blockIdx.x = b;
    if (meets) {
      run_block(block);
      continue;
    }
    for (unsigned t = 0; t < block; ++t) {
      threadIdx.x = t;
      f(a);
    }
  }
}
