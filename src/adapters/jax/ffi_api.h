// The part of XLA's FFI C API that the adapter needs: our own declarations, so building this needs no jaxlib. They
// describe version 0.x of the API. Layouts may change with any version of XLA, so with a jaxlib of unknown version
// `horovod.jax` first runs the self test of library.cc in another process.
//
// Thread rule: plain data. XLA owns a frame and everything it points to during the call.
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

// The first call of a handler queries its metadata: the frame then has this extension.
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

struct FfiErrorText {  // of an error that XLA returned
  size_t struct_size;
  FfiExtension* extensions;
  void* error;
  const char* message;
};

struct FfiErrorEnd {
  size_t struct_size;
  FfiExtension* extensions;
  void* error;
};

struct FfiStreamArguments {
  size_t struct_size;
  FfiExtension* extensions;
  void* context;
  void* stream;  // set by the call: on GPUs a CUstream or hipStream_t
};

struct FfiOrdinalArguments {
  size_t struct_size;
  FfiExtension* extensions;
  void* context;
  int32_t ordinal;  // set by the call
};

// Functions return NULL, or an error that the caller has to destroy.
struct FfiApi {
  size_t struct_size;
  FfiExtension* extensions;
  FfiVersion version;
  const void* internal;
  void* (*create_error)(FfiErrorArguments*);
  void (*error_text)(FfiErrorText*);
  void (*destroy_error)(FfiErrorEnd*);
  const void* register_handler;
  void* (*stream)(FfiStreamArguments*);
  const void* not_used[12];
  void* (*device_ordinal)(FfiOrdinalArguments*);  // since 0.2; struct_size tells whether it is there
};
static_assert(offsetof(FfiApi, stream) == 80 && offsetof(FfiApi, device_ordinal) == 184);

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
