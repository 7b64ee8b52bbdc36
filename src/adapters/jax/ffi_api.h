// XLA's FFI C API as far as the adapter needs it: our own declarations, so that no jaxlib is needed to build this.
// They describe version 0.x of the API. XLA may change layouts with any version, so `horovod.jax` runs the self test of
// library.cc in another process before it uses them with a jaxlib that it has not seen.
//
// Thread rule: plain data. XLA owns a frame and all that it points to for the time of the call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::jax {

struct FfiExtension {
  size_t struct_size;
  int type;
  FfiExtension* next;
};

struct FfiVersion {
  size_t struct_size;
  FfiExtension* extensions;
  int major;
  int minor;
};

struct FfiMetadata {
  size_t struct_size;
  FfiVersion version;
  uint32_t traits;
  int64_t state_type_id;
};

// The first call of a handler asks for its metadata: the frame has this extension then.
constexpr int kMetadataExtension = 1;
struct FfiMetadataExtension {
  FfiExtension base;
  FfiMetadata* metadata;
};

struct FfiBuffer {
  size_t struct_size;
  FfiExtension* extensions;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct FfiSpan {
  const char* data;
  size_t size;
};

struct FfiScalar {
  int dtype;
  void* value;
};

struct FfiBuffers {
  size_t struct_size;
  FfiExtension* extensions;
  int64_t count;
  int* types;
  FfiBuffer** buffers;
};

enum FfiAttributeType : int { kFfiScalar = 3, kFfiString = 4 };

struct FfiAttributes {
  size_t struct_size;
  FfiExtension* extensions;
  int64_t count;
  int* types;
  FfiSpan** names;  // sorted
  void** values;
};

enum FfiErrorCode : int { kFfiInvalidArgument = 3, kFfiAborted = 10 };

struct FfiErrorArguments {
  size_t struct_size;
  FfiExtension* extensions;
  const char* message;
  int code;
};

struct FfiApi {  // the beginning of it
  size_t struct_size;
  FfiExtension* extensions;
  FfiVersion version;
  const void* internal;
  void* (*create_error)(FfiErrorArguments*);
};

enum FfiStage : int { kFfiExecute = 3 };

struct FfiFrame {
  size_t struct_size;
  FfiExtension* extensions;
  const FfiApi* api;
  void* context;
  int stage;
  FfiBuffers inputs;
  FfiBuffers outputs;
  FfiAttributes attributes;
};

constexpr int kFfiU32 = 8;  // dtypes are XLA's PrimitiveType; types.cc has the others

}  // namespace hvd::jax
