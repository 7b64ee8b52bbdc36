// The kernels of the NCCL backend: copy or scale up to 160 pieces in one launch. tools/generate_kernels.sh compiles this
// file to kernels.ptx, which is part of the library; nothing else needs nvcc.
//
// Grid: x covers the elements of a piece, y is the piece. A piece without a source is filled with zeros: a rank that has
// joined takes part with them. The factor of 16-bit types is a float, so each product is rounded once.
// float16 and bfloat16 are converted by integer arithmetic: the text then needs no instruction that old GPUs lack.

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef int i32;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Piece {
  u64 from;   // address; 0: zeros
  u64 to;     // address
  u64 count;  // bytes (copy) or elements (scale)
};

constexpr int kPieces = 160;

struct Pieces {
  Piece piece[kPieces];
};

__device__ inline u64 first_index() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline u64 all_threads() { return static_cast<u64>(gridDim.x) * blockDim.x; }

extern "C" __global__ void hvd_copy(const Pieces pieces) {
  const Piece piece = pieces.piece[blockIdx.y];
  u64 index = first_index(), step = all_threads();
  u64 words = ((piece.from | piece.to) & 7) == 0 ? piece.count / 8 : 0;
  const u64* from = reinterpret_cast<const u64*>(piece.from);
  u64* to = reinterpret_cast<u64*>(piece.to);
  for (u64 i = index; i < words; i += step) to[i] = piece.from == 0 ? 0 : from[i];
  const u8* from_bytes = reinterpret_cast<const u8*>(piece.from);
  u8* to_bytes = reinterpret_cast<u8*>(piece.to);
  for (u64 i = words * 8 + index; i < piece.count; i += step) to_bytes[i] = piece.from == 0 ? 0 : from_bytes[i];
}

__device__ inline float from_bits(u32 bits) { return __int_as_float(static_cast<int>(bits)); }
__device__ inline u32 to_bits(float value) { return static_cast<u32>(__float_as_int(value)); }

struct Bfloat {
  u16 bits;
  __device__ float value() const { return from_bits(static_cast<u32>(bits) << 16); }
  __device__ static Bfloat of(float value) {
    u32 raw = to_bits(value);
    if ((raw & 0x7fffffffu) > 0x7f800000u) return {static_cast<u16>((raw >> 16) | 0x40u)};  // stays a NaN
    return {static_cast<u16>((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16)};
  }
};

struct Half {
  u16 bits;
  __device__ float value() const {
    u32 sign = static_cast<u32>(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return from_bits(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
    // The exponent moves by 112. Scaling by 2^112 is exact and gives subnormals their value.
    float magnitude = from_bits(rest << 13) * from_bits(0x77800000u);
    return from_bits(sign | to_bits(magnitude));
  }
  __device__ static Half of(float value) {
    u32 raw = to_bits(value), sign = (raw >> 16) & 0x8000u, magnitude = raw & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<u16>(sign | 0x7e00u)};
    if (magnitude >= 0x47800000u) return {static_cast<u16>(sign | 0x7c00u)};  // 65536 and more
    if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 puts the last bit of the result at the end, rounded
      u32 shifted = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000u;
      return {static_cast<u16>(sign | shifted)};
    }
    u32 rounded = magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u);  // exponent - 112, then half an unit
    return {static_cast<u16>(sign | (rounded >> 13))};
  }
};

template <class T, class F>
struct Plain {
  T bits;
  __device__ F value() const { return static_cast<F>(bits); }
  __device__ static Plain of(F value) { return {static_cast<T>(value)}; }
};

template <class E, class F>
__device__ inline void scale(const Pieces& pieces, F factor) {
  const Piece piece = pieces.piece[blockIdx.y];
  u64 step = all_threads();
  const E* from = reinterpret_cast<const E*>(piece.from);
  E* to = reinterpret_cast<E*>(piece.to);
  for (u64 i = first_index(); i < piece.count; i += step) to[i] = piece.from == 0 ? E{0} : E::of(from[i].value() * factor);
}

extern "C" {
__global__ void hvd_scale_u8(const Pieces pieces, double factor) { scale<Plain<u8, double>>(pieces, factor); }
__global__ void hvd_scale_i8(const Pieces pieces, double factor) { scale<Plain<i8, double>>(pieces, factor); }
__global__ void hvd_scale_i32(const Pieces pieces, double factor) { scale<Plain<i32, double>>(pieces, factor); }
__global__ void hvd_scale_i64(const Pieces pieces, double factor) { scale<Plain<i64, double>>(pieces, factor); }
__global__ void hvd_scale_f16(const Pieces pieces, float factor) { scale<Half>(pieces, factor); }
__global__ void hvd_scale_bf16(const Pieces pieces, float factor) { scale<Bfloat>(pieces, factor); }
__global__ void hvd_scale_f32(const Pieces pieces, float factor) { scale<Plain<float, float>>(pieces, factor); }
__global__ void hvd_scale_f64(const Pieces pieces, double factor) { scale<Plain<double, double>>(pieces, factor); }
}
