/* Horovod: collective communication for training. The only public header, and the only symbols libhorovod.so exports.
 *
 * One process is one rank. hvd_init() forms the world that the HOROVOD_* environment describes; operations are then
 * submitted by name, in any order and from any thread, and matched across ranks by (process set, name).
 *
 * Results. Every function that returns hvd_code returns HVD_OK or says why not; hvd_last_error() gives the text of the
 * calling thread's last failure. Functions that return an int value return it, or a negative hvd_code (-HVD_...).
 *
 * Layout rules, so that callers and library may be of different versions:
 *  - Structs start with `struct_size`, set by the caller to its sizeof. Fields are only ever added at the end; a field
 *    beyond the caller's struct_size takes the default its comment states. Reserved fields are zero.
 *  - Enumerators keep their numbers. Functions keep their signatures; new ones are added.
 *  - hvd_abi_version() is HVD_ABI_VERSION of the library: same major half = compatible, the minor half counts
 * additions.
 *
 * Threads. Every function may be called from any thread, except that hvd_init and hvd_shutdown exclude each other.
 * A thread that blocks in hvd_wait drives the communication itself; otherwise a background thread does.
 * After fork() every call in the child fails with HVD_NOT_INITIALIZED; the parent is not disturbed.
 */
#ifndef HOROVOD_HOROVOD_H_
#define HOROVOD_HOROVOD_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_ABI_VERSION 0x00010000u /* major << 16 | minor */
#if defined(__GNUC__)
#define HVD_EXPORT __attribute__((visibility("default")))
#else
#define HVD_EXPORT
#endif

typedef enum hvd_code {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1, /* the caller's mistake; nothing was sent */
  HVD_PRECONDITION = 2,     /* ranks disagree, or not allowed now (join) */
  HVD_ABORTED = 3,          /* can never be executed */
  HVD_UNKNOWN = 4,          /* shut down while pending, transport failure, unsupported combination */
  HVD_PEER_LOST = 5,        /* a rank died or fell silent: shut down, init again and go on */
  HVD_TIMED_OUT = 6,        /* hvd_wait's time limit; the operation goes on */
  HVD_NOT_INITIALIZED = 7
} hvd_code;

typedef enum hvd_dtype {
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_UINT16 = 2,
  HVD_INT16 = 3,
  HVD_INT32 = 4,
  HVD_INT64 = 5,
  HVD_FLOAT16 = 6,
  HVD_FLOAT32 = 7,
  HVD_FLOAT64 = 8,
  HVD_BOOL = 9,
  HVD_BFLOAT16 = 10,
  HVD_COMPLEX64 = 11,
  HVD_COMPLEX128 = 12
} hvd_dtype;

typedef enum hvd_kind {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_ALLTOALL = 3,
  HVD_REDUCESCATTER = 4,
  HVD_BARRIER = 5, /* no tensors; the name is ignored */
  HVD_JOIN = 6     /* no tensors; the name is ignored; hvd_result_value is the rank that joined last */
} hvd_kind;

typedef enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
} hvd_reduce_op;

#define HVD_HOST_DEVICE (-1)
#define HVD_WORLD_SET 0

/* A tensor in row-major order. `stream` and `ready_event` belong to the accelerator runtime of `device`: the data is
 * valid once ready_event has happened and work on it is ordered by stream; both are NULL for host memory. */
typedef struct hvd_tensor {
  uint32_t struct_size;
  int32_t dtype;  /* hvd_dtype */
  int32_t device; /* HVD_HOST_DEVICE or an accelerator's ordinal */
  int32_t ndim;
  const int64_t* shape;
  void* data;
  void* stream;
  void* ready_event;
} hvd_tensor;

typedef int64_t hvd_handle; /* > 0 */

/* Provides memory for an output whose size is known only after negotiation. Called once per such output, before its
 * data moves, from the thread that drives communication; must not call the library. NULL return fails the operation. */
typedef void* (*hvd_allocate)(void* context, int32_t index, int32_t dtype, int32_t ndim, const int64_t* shape);

/* Called once when the handle is done, from the thread that completed it, without locks held; it may read the results
 * and call hvd_release. Not called if hvd_submit fails. */
typedef void (*hvd_done)(void* context, hvd_handle handle, hvd_code code);

/* One tensor's request. A group (several requests submitted together) becomes ready as a whole and shares one handle.
 */
typedef struct hvd_request {
  uint32_t struct_size;
  int32_t kind;        /* hvd_kind */
  int32_t reduce_op;   /* hvd_reduce_op; allreduce and reducescatter */
  int32_t process_set; /* HVD_WORLD_SET or an id of hvd_add_process_set */
  int32_t root_rank;   /* broadcast: rank in the world */
  int32_t splits_count;
  const int32_t* splits; /* alltoall: rows for each rank of the set; NULL: even */
  const char* name;
  double prescale_factor;
  double postscale_factor;
  hvd_tensor input;
  /* Where the result goes. allreduce, broadcast: shape and dtype of the input, may be the same memory. reducescatter:
   * this rank's rows. allgather, alltoall: leave data NULL; the memory comes from `allocate` or from the engine. For
   * reducescatter data may be NULL too. */
  hvd_tensor output;
} hvd_request;

typedef struct hvd_submit_options {
  uint32_t struct_size;
  uint32_t
      wait_follows; /* 1: the caller will hvd_wait at once, so the background thread need not be woken. Default 0 */
  hvd_allocate allocate; /* default NULL: the engine allocates */
  void* allocate_context;
  hvd_done done; /* default NULL */
  void* done_context;
} hvd_submit_options;

/* ---- life cycle ---- */

HVD_EXPORT uint32_t hvd_abi_version(void);
HVD_EXPORT const char* hvd_version(void); /* "1.0.0" */
/* Text of this thread's last failure; valid until the thread's next call. Never NULL. */
HVD_EXPORT const char* hvd_last_error(void);

/* Forms the world. Collective. Does nothing when already initialised. `set_ranks` holds `set_count` static process sets
 * one after another, set i having set_sizes[i] ranks; they get the ids 1..set_count. */
HVD_EXPORT hvd_code hvd_init(int32_t set_count, const int32_t* set_sizes, const int32_t* set_ranks);
/* Ends communication on all ranks; pending operations fail there with HVD_UNKNOWN. May be called again and again.
 * Handles stay valid until hvd_release or the next hvd_init, where their numbers start again. */
HVD_EXPORT hvd_code hvd_shutdown(void);
HVD_EXPORT int32_t hvd_is_initialized(void);

/* ---- the world; negative: -HVD_NOT_INITIALIZED ---- */

HVD_EXPORT int32_t hvd_rank(void);
HVD_EXPORT int32_t hvd_size(void);
HVD_EXPORT int32_t hvd_local_rank(void);
HVD_EXPORT int32_t hvd_local_size(void);
HVD_EXPORT int32_t hvd_cross_rank(void);
HVD_EXPORT int32_t hvd_cross_size(void);
HVD_EXPORT int32_t hvd_is_homogeneous(void); /* every host has the same number of ranks */

/* ---- process sets ---- */

/* Collective over the world, only with HOROVOD_DYNAMIC_PROCESS_SETS=1. Returns the id. */
HVD_EXPORT int32_t hvd_add_process_set(const int32_t* ranks, int32_t count);
/* Collective over the world. 1: removed; 0: the world's set or no such set. */
HVD_EXPORT int32_t hvd_remove_process_set(int32_t id);
HVD_EXPORT int32_t hvd_process_set_size(int32_t id); /* -HVD_INVALID_ARGUMENT: no such set */
HVD_EXPORT int32_t hvd_process_set_rank(int32_t id); /* this rank's place in the set; -HVD_INVALID_ARGUMENT: none */
/* Writes up to `capacity` ranks (sorted) and returns how many the set has. */
HVD_EXPORT int32_t hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity);
/* Writes up to `capacity` ids (ascending, world first) and returns how many sets there are. */
HVD_EXPORT int32_t hvd_process_set_ids(int32_t* ids, int32_t capacity);

/* ---- operations ---- */

/* Submits one request, or a group of them, and returns at once. Names, shapes, splits and the structs are copied; the
 * tensors' memory must stay until the handle is done. On failure nothing was submitted. options may be NULL. */
HVD_EXPORT hvd_code hvd_submit(const hvd_request* requests, int32_t count, const hvd_submit_options* options,
                               hvd_handle* handle);
/* 1: done; 0: not yet; -HVD_INVALID_ARGUMENT: no such handle. */
HVD_EXPORT int32_t hvd_poll(hvd_handle handle);
/* Waits for the handle and returns its outcome; HVD_TIMED_OUT after `seconds` (< 0: no limit). The handle stays. */
HVD_EXPORT hvd_code hvd_wait(hvd_handle handle, double seconds);
/* The output of tensor `index` of a finished handle: shape and data. The view is valid until hvd_release. */
HVD_EXPORT hvd_code hvd_result(hvd_handle handle, int32_t index, hvd_tensor* output);
/* Takes over engine-allocated memory of an output, without a copy; give it back with hvd_free. */
HVD_EXPORT hvd_code hvd_take_result(hvd_handle handle, int32_t index, hvd_tensor* output);
HVD_EXPORT void hvd_free(void* data);
/* alltoall: the rows received from each rank of the set. Returns how many ranks; writes up to `capacity`. */
HVD_EXPORT int32_t hvd_received_splits(hvd_handle handle, int32_t index, int32_t* splits, int32_t capacity);
HVD_EXPORT int32_t hvd_result_value(hvd_handle handle); /* join: the rank that joined last */
/* Forgets the handle. A pending operation goes on; its buffers must stay until it is done. */
HVD_EXPORT void hvd_release(hvd_handle handle);

/* ---- observation ---- */

HVD_EXPORT hvd_code hvd_start_timeline(const char* path, int32_t mark_cycles);
HVD_EXPORT hvd_code hvd_stop_timeline(void);
/* All knobs as a JSON array of {name, default, range, text}; the source of docs/knobs.md. Static storage. */
HVD_EXPORT const char* hvd_knobs_json(void);
/* 0, or the NCCL version code, of the loaded backends: "nccl", "mpi", "cuda", "gloo" (the built-in transport: 1). */
HVD_EXPORT int32_t hvd_backend_built(const char* name);

#ifdef __cplusplus
}
#endif

#endif /* HOROVOD_HOROVOD_H_ */
