/* Horovod: collective communication for training. The only public header, and the only symbols libhorovod.so exports.
 *
 * One process is one rank. hvd_init() forms the world that the HOROVOD_* environment describes; operations are then
 * submitted by name, in any order and from any thread, and matched across ranks by (process set, name).
 *
 * Results. Every function that returns hvd_code returns HVD_OK or an error; hvd_last_error() returns the text of the
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
 * After fork() every call in the child fails with HVD_NOT_INITIALIZED; the parent is not affected.
 */
#ifndef HOROVOD_HOROVOD_H_
#define HOROVOD_HOROVOD_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_ABI_VERSION 0x00010007u /* major << 16 | minor */
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
  HVD_PEER_LOST = 5,        /* a rank died or fell silent: shut down, init again and continue */
  HVD_TIMED_OUT = 6,        /* hvd_wait's time limit; the operation continues */
  HVD_NOT_INITIALIZED = 7,
  HVD_REMOVED = 8 /* elastic: the job has no place for this process any more; it should end, with exit code 0 */
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
  HVD_JOIN = 6,    /* no tensors; the name is ignored; hvd_result_value is the rank that joined last */
  HVD_REDUCE = 9,  /* to root_rank; elsewhere there is no output */
  /* To root_rank: the rows of all ranks, which may differ, in order; elsewhere there is no output. */
  HVD_GATHER = 10,
  /* From root_rank: its rows are shared out as in reducescatter. All ranks give the shape of the whole input; its data
   * are read at the root only, and may be NULL elsewhere. */
  HVD_SCATTER = 11,
  /* Point to point. root_rank is the other rank, of the world; process_set is not used. A send and the receive of the
   * same name between two ranks belong together, and agree about dtype and shape. Each is done when the data have
   * moved. Any number may be under way, in any order; none of them holds up others that are not between the same two
   * ranks. */
  HVD_SEND = 12,    /* has an input and no output */
  HVD_RECEIVE = 13, /* input describes the tensor, without data; the data go to output.data */
  /* Waits for a send to this rank whose name begins like the probe's, up to and with the first '#', and whose receive
   * is not submitted. hvd_result_value is the sender. Each such send is found by one probe; then it is to be received.
   * dtype, shape and tensors are not used. */
  HVD_PROBE = 14
} hvd_kind;

typedef enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5,
  HVD_BIT_AND = 6, /* of integers and bool, as the next two */
  HVD_BIT_OR = 7,
  HVD_BIT_XOR = 8
} hvd_reduce_op;

/* How the rank failed that caused a failure. */
typedef enum hvd_failure_kind {
  HVD_FAILURE_UNKNOWN = 0,
  HVD_FAILURE_EXCEPTION = 1, /* its program raised an exception that nothing caught */
  HVD_FAILURE_EXIT = 2,      /* its program ended by itself */
  HVD_FAILURE_SIGNAL = 3,    /* a signal killed it */
  HVD_FAILURE_LOST = 4,      /* its connections ended without a word */
  HVD_FAILURE_SHUTDOWN = 5,  /* it called hvd_shutdown while others needed it */
  HVD_FAILURE_SILENT = 6,    /* it was stopped, or its host is cut off */
  HVD_FAILURE_INTERNAL = 7,  /* an error of Horovod itself */
  HVD_FAILURE_DEADLINE = 8   /* it did not do its part in time */
} hvd_failure_kind;

typedef enum hvd_hosts_change {
  HVD_HOSTS_REMOVED = 1,
  HVD_HOSTS_ADDED = 2,
  HVD_HOSTS_MIXED = 3 /* both */
} hvd_hosts_change;

/* Requests of the elastic driver to its caller; hvd_driver_action says which fields are used. */
typedef enum hvd_driver_action_kind {
  HVD_DRIVER_START = 1,  /* start this worker on this slot of this host; no other living worker has it */
  HVD_DRIVER_STOP = 2,   /* end its process, politely first; hvd_driver_worker_exited must follow */
  HVD_DRIVER_NOTIFY = 3, /* tell this worker that the hosts have changed (hvd_elastic_event) */
  HVD_DRIVER_ASSIGN = 4, /* the answer to a worker that has asked: its place. All of a generation come in a row */
  HVD_DRIVER_LEAVE = 5,  /* the answer to a worker that has asked and gets no place: it ends with exit code 0 */
  HVD_DRIVER_SAY = 6,    /* one decision and why, to be logged */
  HVD_DRIVER_FAIL = 7,   /* the job has failed and its workers are being stopped; a finish follows */
  HVD_DRIVER_FINISH = 8  /* no worker is left; nothing comes after this */
} hvd_driver_action_kind;

#define HVD_HOST_DEVICE (-1)
#define HVD_WORLD_SET 0
#define HVD_NO_RESETS (-1)
#define HVD_OWN_CLOCK (-1.0)

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
  int32_t reduce_op;   /* hvd_reduce_op; allreduce, reducescatter and reduce */
  int32_t process_set; /* HVD_WORLD_SET or an id of hvd_add_process_set */
  int32_t root_rank;   /* broadcast, reduce, gather, scatter: rank in the world; send, receive: the other rank */
  int32_t splits_count;
  const int32_t* splits; /* alltoall: rows for each rank of the set; NULL: even */
  const char* name;
  double prescale_factor;
  double postscale_factor;
  hvd_tensor input;
  /* Where the result goes. allreduce, broadcast: shape and dtype of the input, may be the same memory. reducescatter:
   * this rank's rows, as scatter. allgather, alltoall, gather: data may be NULL; then the memory comes from `allocate`
   * or from the engine. If it is not, dtype and shape say how much room there is, and it is used if the result has
   * exactly this many bytes. For reducescatter, scatter and reduce data may be NULL too. */
  hvd_tensor output;
} hvd_request;

typedef struct hvd_submit_options {
  uint32_t struct_size;
  /* 1: the caller will hvd_wait immediately, so the background thread need not be woken. 2: it will hvd_wait after
   * other work, and the background thread should leave it the core. Default 0. */
  uint32_t wait_follows;
  hvd_allocate allocate; /* default NULL: the engine allocates */
  void* allocate_context;
  hvd_done done; /* default NULL */
  void* done_context;
} hvd_submit_options;

/* The origin of a failure. */
typedef struct hvd_failure {
  uint32_t struct_size;
  int32_t kind;        /* hvd_failure_kind */
  int32_t rank;        /* of the world; -1: no single rank */
  int32_t is_own;      /* 1: this process itself; 0: another rank, whose failure this process only feels */
  int64_t pid;         /* of the rank; 0: not known */
  const char* host;    /* of the rank; "": not known */
  const char* type;    /* exception: its class */
  const char* message; /* exception: its message */
} hvd_failure;

/* A notice from the launcher of an elastic job. */
typedef struct hvd_elastic_event {
  uint32_t struct_size;
  int32_t change;   /* hvd_hosts_change */
  double timestamp; /* seconds since 1970 by the launcher's clock; later than that of every event before */
} hvd_elastic_event;

/* The settings of an elastic job, as in horovodrun's options of these names. Zero means the default, except for min_np.
 */
typedef struct hvd_driver_settings {
  uint32_t struct_size;
  int32_t min_np;         /* what every generation needs, at least 1 */
  int32_t max_np;         /* default: every slot is used */
  int32_t np;             /* what the first generation needs; default: min_np */
  int32_t reset_limit;    /* generations after the first; HVD_NO_RESETS: none at all; default: any number */
  int32_t reserved;       /* zero */
  double elastic_timeout; /* seconds to wait for slots, and for workers to come back; default 600 */
  double start_timeout;   /* seconds after which the first generation may start with min_np; default 30 */
  double cooldown_lower;  /* seconds that a host rests after its first failure; default 0.25 */
  double cooldown_upper;  /* and at most; default 60 */
  uint64_t seed;          /* of the chance in these rests; default: a random one */
} hvd_driver_settings;

/* One action. Fields that do not belong to its kind are 0 and "". */
typedef struct hvd_driver_action {
  uint32_t struct_size;
  int32_t kind;       /* hvd_driver_action_kind */
  int64_t worker;     /* start, stop, notify, assign, leave: one process; > 0, never used twice */
  int64_t generation; /* assign */
  const char* host;   /* start, assign */
  const char* text;   /* leave, fail: why; say: the line */
  int32_t slot;       /* start */
  int32_t rank;       /* assign, as the five below; places come by rank */
  int32_t size;
  int32_t local_rank;
  int32_t local_size;
  int32_t cross_rank;
  int32_t cross_size;
  int32_t change;    /* notify: hvd_hosts_change */
  int32_t level;     /* say: 0 trace, 1 debug, 2 info, 3 warning, 4 error, 5 fatal */
  int32_t exit_code; /* finish: of the job */
  double timestamp;  /* notify: seconds since 1970, later than that of every notice before */
} hvd_driver_action;

typedef struct hvd_driver hvd_driver; /* decides about one elastic job */
typedef struct hvd_listener hvd_listener;
typedef struct hvd_connection hvd_connection;

/* ---- life cycle ---- */

HVD_EXPORT uint32_t hvd_abi_version(void);
HVD_EXPORT const char* hvd_version(void); /* "1.0.0" */
/* Text of this thread's last failure; valid until the thread's next call. Never NULL. */
HVD_EXPORT const char* hvd_last_error(void);
/* The origin of this thread's last failure. 1: it is known, and texts are valid until the thread's next call; 0: it is
 * unknown. */
HVD_EXPORT int32_t hvd_last_failure(hvd_failure* failure);
/* The same for the failure that ended the current world, or the last one. 0: it has not failed. */
HVD_EXPORT int32_t hvd_world_failure(hvd_failure* failure);
/* Reports why this process is about to end: to the launcher, and in hvd_shutdown to the other ranks. is_own = 1: the
 * process itself failed; rank, host and pid are filled in. is_own = 0: it ends because of the failure of another rank,
 * as returned by hvd_last_failure. Call once, before hvd_shutdown; the launcher keeps the first report. */
HVD_EXPORT hvd_code hvd_report_end(const hvd_failure* failure);

/* Forms the world. Collective. Does nothing when already initialised. `set_ranks` holds `set_count` static process sets
 * one after another, set i having set_sizes[i] ranks; they get the ids 1..set_count.
 *
 * In an elastic job (HOROVOD_ELASTIC=1) the launcher assigns this process's place, the first time and after every
 * hvd_shutdown: the call waits for the next world, for HOROVOD_ELASTIC_TIMEOUT at most, and forms it. If
 * a worker dies in the meantime, the call asks again. HVD_REMOVED: there is no place for this process. */
HVD_EXPORT hvd_code hvd_init(int32_t set_count, const int32_t* set_sizes, const int32_t* set_ranks);
/* Ends communication on all ranks; pending operations fail there with HVD_UNKNOWN. May be called repeatedly.
 * When it returns, no operation uses memory of the caller any more; if other ranks do not answer, that takes a few
 * seconds. Handles stay valid until hvd_release or the next hvd_init; their numbers are not reused.
 * HVD_PRECONDITION: called from a callback of an operation, which must return first. */
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
/* As hvd_add_process_set, by the members alone. Does not wait: hvd_result_value of the handle is the id. */
HVD_EXPORT hvd_code hvd_form_process_set(const int32_t* ranks, int32_t count, hvd_handle* handle);
/* Ends this rank's use of the set: it submits nothing more there. Does not wait; the set is removed once all its
 * members have left, and what is pending on it then fails. */
HVD_EXPORT hvd_code hvd_leave_process_set(int32_t id);
HVD_EXPORT int32_t hvd_process_set_size(int32_t id); /* -HVD_INVALID_ARGUMENT: no such set */
HVD_EXPORT int32_t hvd_process_set_rank(int32_t id); /* this rank's place in the set; -HVD_INVALID_ARGUMENT: none */
/* Writes up to `capacity` ranks (sorted) and returns how many the set has. */
HVD_EXPORT int32_t hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity);
/* Writes up to `capacity` ids (ascending, world first) and returns how many sets there are. */
HVD_EXPORT int32_t hvd_process_set_ids(int32_t* ids, int32_t capacity);

/* ---- operations ---- */

/* Submits one request, or a group of them, and returns at once. Names, shapes, splits and the structs are copied; the
 * tensors' memory must stay valid until the handle is done. On failure nothing was submitted. options may be NULL. */
HVD_EXPORT hvd_code hvd_submit(const hvd_request* requests, int32_t count, const hvd_submit_options* options,
                               hvd_handle* handle);
/* Submits `count` independent requests, like count calls of hvd_submit, but cheaper: each is negotiated separately and
 * gets its own handle, and the background thread is woken once for all. They are submitted in order. If one is
 * rejected, those before it are submitted and continue: their handles are valid and must be waited for and released as
 * usual; the rejected one and all after it are not submitted, and their handles are 0. So the error is about the first
 * handle that is 0; with HVD_NOT_INITIALIZED that is the very first. options->done and
 * options->allocate serve every request. */
HVD_EXPORT hvd_code hvd_submit_many(const hvd_request* requests, int32_t count, const hvd_submit_options* options,
                                    hvd_handle* handles);
/* 1: done; 0: not yet; -HVD_INVALID_ARGUMENT: no such handle. */
HVD_EXPORT int32_t hvd_poll(hvd_handle handle);
/* Attaches a callback, as hvd_submit_options.done, after submit. It is called once; if the handle is done already, at
 * once by this thread. A pending handle takes one callback. Any thread may call this. */
HVD_EXPORT hvd_code hvd_when_done(hvd_handle handle, hvd_done done, void* context);
/* Waits for the handle and returns its outcome; HVD_TIMED_OUT after `seconds` (< 0: no limit). The handle stays. */
HVD_EXPORT hvd_code hvd_wait(hvd_handle handle, double seconds);
/* Waits until all handles are done, whatever their outcome, and returns the first failure in the order given.
 * HVD_TIMED_OUT: after `seconds` (< 0: no limit) some are not done. Handles that are 0 are skipped. */
HVD_EXPORT hvd_code hvd_wait_many(const hvd_handle* handles, int32_t count, double seconds);
/* The output of tensor `index` of a finished handle: shape and data. The view is valid until hvd_release. */
HVD_EXPORT hvd_code hvd_result(hvd_handle handle, int32_t index, hvd_tensor* output);
/* Takes ownership of engine-allocated memory of an output, without a copy; free it with hvd_free. */
HVD_EXPORT hvd_code hvd_take_result(hvd_handle handle, int32_t index, hvd_tensor* output);
HVD_EXPORT void hvd_free(void* data);
/* For operations on an accelerator: returns when all work of the handle is on streams of its device, and makes `stream`
 * of the caller wait for it there. The tensors must stay valid until then, and until that stream has reached that
 * point. hvd_wait means that the device has finished. A handle that is done returns its outcome. HVD_TIMED_OUT after
 * `seconds` (< 0: no limit). */
HVD_EXPORT hvd_code hvd_wait_on_stream(hvd_handle handle, void* stream, double seconds);
/* 1: tensors on accelerators of this type are supported for this kind and reduction; 0: they must be copied to host
 * memory first. The same on all ranks. */
HVD_EXPORT int32_t hvd_device_accepts(int32_t kind, int32_t dtype, int32_t reduce_op);
/* Outputs in a framework's own memory, for operations whose output size is not known before. `exchange`: its table
 * DLPackExchangeAPI, major version 1. Pass hvd_dlpack_allocate and the object as options.allocate and allocate_context.
 * When the operation is done, take() gives the DLManagedTensorVersioned of an output to the caller; NULL: it is empty.
 * destroy() frees those that were not taken. create() returns NULL if the table is of another version. */
HVD_EXPORT void* hvd_dlpack_outputs_create(const void* exchange, int32_t device_type, int32_t device_id, int32_t count);
HVD_EXPORT void* hvd_dlpack_allocate(void* context, int32_t index, int32_t dtype, int32_t ndim, const int64_t* shape);
HVD_EXPORT void* hvd_dlpack_outputs_take(void* outputs, int32_t index);
HVD_EXPORT void hvd_dlpack_outputs_destroy(void* outputs);
/* Whether work may go on behind an operation on an accelerator, by hvd_wait_on_stream, where it would otherwise wait
 * for its end: `of_gradients` of a DistributedOptimizer, or of any operation. 1: yes; 0: no
 * (HOROVOD_ENABLE_ASYNC_COMPLETION or an elastic job, which must not commit a step before it knows how it ended). */
HVD_EXPORT int32_t hvd_completes_on_stream(int32_t of_gradients);
/* alltoall: the rows received from each rank of the set. Returns how many ranks; writes up to `capacity`. */
HVD_EXPORT int32_t hvd_received_splits(hvd_handle handle, int32_t index, int32_t* splits, int32_t capacity);
/* join: the rank that joined last; probe: the sender; hvd_form_process_set: the id. */
HVD_EXPORT int32_t hvd_result_value(hvd_handle handle);
/* Releases the handle. A pending operation continues; its buffers must stay valid until it is done. */
HVD_EXPORT void hvd_release(hvd_handle handle);
/* Releases them all; handles that are 0 are skipped. */
HVD_EXPORT void hvd_release_many(const hvd_handle* handles, int32_t count);

/* ---- MPI ----
 *
 * With HOROVOD_CONTROLLER=mpi, HOROVOD_CPU_OPERATIONS=mpi or hvd_mpi_use, hvd_init takes the world from MPI: it starts
 * MPI unless it runs, and the ranks meet over it. MPI is reached through a plugin that horovodrun --build-mpi compiles.
 */

/* Loads the plugin at this path; NULL: the one that HOROVOD_MPI_LIBRARY names. Does not start MPI. Does nothing when
 * one is loaded: it stays for the life of the process. */
HVD_EXPORT hvd_code hvd_mpi_load(const char* library);
/* The loaded MPI's version text, as from MPI_Get_library_version; "": none is loaded. Valid until the thread's next
 * call of this function. */
HVD_EXPORT const char* hvd_mpi_version(void);
/* The world of the next hvd_init, for that call only: `communicator` is the address of an MPI_Comm of the loaded MPI,
 * NULL is MPI_COMM_WORLD; count > 0: only these ranks of it, which become the ranks 0, 1, ... of the world. */
HVD_EXPORT hvd_code hvd_mpi_use(const void* communicator, const int32_t* ranks, int32_t count);
/* Whether an MPI launcher started this process, and no variable defines another rendezvous. Then MPI should be the
 * controller: 1, all ranks are on this host: hvd_mpi_load and hvd_mpi_offer; 2, they are not, or it is unknown:
 * hvd_mpi_load and hvd_mpi_use. 0: no. */
HVD_EXPORT int32_t hvd_mpi_expected(void);
/* For the next hvd_init of a process with hvd_mpi_expected() = 1. The ranks meet without MPI and compare: if no rank
 * has an obstacle, each starts MPI if it is not running, and hvd_mpi_enabled() is 1; otherwise MPI is not used.
 * `obstacle`: why this rank cannot use MPI, as text; NULL: it can. `ranks` as for hvd_mpi_use, if MPI is used. */
HVD_EXPORT hvd_code hvd_mpi_offer(const char* obstacle, const int32_t* ranks, int32_t count);
/* Why this world does not use MPI although an MPI launcher started its ranks; "": it does, or none did. Valid until
 * the thread's next call of this function. */
HVD_EXPORT const char* hvd_mpi_obstacle(void);
HVD_EXPORT int32_t hvd_mpi_enabled(void);           /* 1: this world has met over MPI, or its data go there */
HVD_EXPORT int32_t hvd_gloo_enabled(void);          /* 1: the engine itself carries this world's data */
HVD_EXPORT int32_t hvd_mpi_threads_supported(void); /* 1: enabled, and MPI may be called from several threads */
/* For the end of the process: hvd_shutdown, then ends MPI if hvd_init started it. After a failure (`failed`, or a rank
 * is lost, or operations of MPI were left unfinished) MPI is not ended, because that might never return: the job ends
 * with this process, or by MPI_Abort if the script started MPI. */
HVD_EXPORT void hvd_mpi_end(int32_t failed);

/* ---- elastic jobs ---- */

/* Waits until hosts or slots were added or removed, so that a new world should be formed at the next convenient
 * time: hvd_shutdown, then hvd_init. HVD_TIMED_OUT after `seconds` (< 0: no limit). HVD_ABORTED: there will be no more
 * events, because the launcher is gone or hvd_elastic_stop_waiting was called. HVD_PRECONDITION: not a worker of an
 * elastic job. Meant for a separate thread. */
HVD_EXPORT hvd_code hvd_elastic_next_event(double seconds, hvd_elastic_event* event);
/* Every hvd_elastic_next_event that waits, and every later one, returns HVD_ABORTED. */
HVD_EXPORT void hvd_elastic_stop_waiting(void);
/* Tells the launcher that this process is about to leave, with a reason (for example pre-emption). The launcher
 * announces it to the others as a removed slot, and has no place for this process in the next world. */
HVD_EXPORT hvd_code hvd_elastic_leave(const char* reason);

/* ---- connections between processes that share a key, as horovod.run uses them ----
 *
 * Both sides prove to have the key, and everything is encrypted (TLS 1.3 with a pre-shared key, then the handshake of
 * all connections of a job). Nothing is sent or received before that. The bytes have no structure.
 *
 * No hvd_init is needed. A key is written in hexadecimal, at least 32 digits. A timeout is in seconds; negative: none.
 * One thread may send while another receives. The two _close functions may be called from any thread, and make calls
 * that block in others fail; the _destroy functions only when no call is under way, and also after a fork(), where they
 * do not affect the parent's connection. */

/* Listens on these IP addresses, or on all interfaces if count is 0; all have the same port. */
HVD_EXPORT hvd_code hvd_listen(const char* const* addresses, int32_t count, const char* key, hvd_listener** listener,
                               int32_t* port);
HVD_EXPORT hvd_code hvd_accept(hvd_listener* listener, hvd_connection** connection); /* blocks */
HVD_EXPORT void hvd_listener_close(hvd_listener* listener);
HVD_EXPORT void hvd_listener_destroy(hvd_listener* listener);
/* Connects to a listener at the first address that works; hosts[i] has ports[i]. `name` is for messages. */
HVD_EXPORT hvd_code hvd_connect(const char* name, const char* const* hosts, const int32_t* ports, int32_t count,
                                const char* key, double timeout, hvd_connection** connection);
/* Block until some of the bytes were moved. 0 bytes: a signal arrived; call again after its handler has run. */
HVD_EXPORT hvd_code hvd_connection_send(hvd_connection* connection, const void* data, int64_t size, int64_t* sent);
HVD_EXPORT hvd_code hvd_connection_receive(hvd_connection* connection, void* data, int64_t size, double timeout,
                                           int64_t* received);
/* The address of this machine that the connection uses; valid until the next such call. */
HVD_EXPORT const char* hvd_connection_local_address(hvd_connection* connection);
HVD_EXPORT void hvd_connection_close(hvd_connection* connection);
HVD_EXPORT void hvd_connection_destroy(hvd_connection* connection);

/* ---- the driver of an elastic job, for hosts that start the workers themselves ----
 *
 * Decides which workers run where, which are in which generation and when the job ends; it starts no process itself.
 * Report all events to it. After every call, carry out the actions of hvd_driver_next_action, in order, until there are
 * no more. Call hvd_driver_timer at the time that hvd_driver_next_timer returns. Continue until hvd_driver_finished.
 *
 * `now` is the time in seconds by a clock of the caller's that does not go back, at least 0 and less than 2^32; or
 * HVD_OWN_CLOCK, for the library's. A driver always uses the kind of clock that it was created with. Events of
 * workers that no longer exist are ignored; worker ids that were never assigned are errors. A call that fails changes
 * nothing.
 *
 * No hvd_init is needed, and a fork() does not matter. One caller at a time for each driver. */

HVD_EXPORT hvd_code hvd_driver_create(const hvd_driver_settings* settings, double now, hvd_driver** driver);
HVD_EXPORT void hvd_driver_destroy(hvd_driver* driver); /* NULL is fine */

/* All current hosts, each once, with the number of workers that each may have. */
HVD_EXPORT hvd_code hvd_driver_hosts_discovered(hvd_driver* driver, double now, const char* const* hosts,
                                                const int32_t* slots, int32_t count);
/* A worker asks for its next place: for the first time, or because its world ended. `lost_rank` is the rank of that
 * world whose heartbeats stopped, if this was its end, else -1. */
HVD_EXPORT hvd_code hvd_driver_worker_ready(hvd_driver* driver, double now, int64_t worker, int32_t lost_rank);
/* Its process has ended, with the code of exit(), or by a signal if that is not 0. */
HVD_EXPORT hvd_code hvd_driver_worker_exited(hvd_driver* driver, double now, int64_t worker, int32_t exit_code,
                                             int32_t signal);
/* It will leave at its next commit: its machine is being taken away. Reasons are texts for the log; NULL: none. */
HVD_EXPORT hvd_code hvd_driver_worker_leaving(hvd_driver* driver, double now, int64_t worker, const char* reason);
/* The process could not be started. */
HVD_EXPORT hvd_code hvd_driver_start_failed(hvd_driver* driver, double now, int64_t worker, const char* reason);
/* The host is unreachable. Its workers count as dead, and their ends need not be reported. */
HVD_EXPORT hvd_code hvd_driver_host_lost(hvd_driver* driver, double now, const char* host, const char* reason);
/* The user ends the job, with this exit code. */
HVD_EXPORT hvd_code hvd_driver_stop(hvd_driver* driver, double now, const char* reason, int32_t exit_code);
/* Time has passed; harmless at any moment. */
HVD_EXPORT hvd_code hvd_driver_timer(hvd_driver* driver, double now);

/* 1: wrote the next action, whose texts are valid until the next call with this driver; 0: no action is left. */
HVD_EXPORT int32_t hvd_driver_next_action(hvd_driver* driver, hvd_driver_action* action);
/* Seconds until hvd_driver_timer must be called if there is no earlier event; -1: never. */
HVD_EXPORT hvd_code hvd_driver_next_timer(const hvd_driver* driver, double now, double* seconds);
/* What the job is waiting for, as text; "": nothing. Valid until the next call with this driver. */
HVD_EXPORT const char* hvd_driver_waiting_for(const hvd_driver* driver);
HVD_EXPORT int32_t hvd_driver_finished(const hvd_driver* driver); /* 1: finish was decided; 0: not yet */

/* ---- observation ---- */

HVD_EXPORT hvd_code hvd_start_timeline(const char* path, int32_t mark_cycles);
HVD_EXPORT hvd_code hvd_stop_timeline(void);
/* All knobs as a JSON array of {name, default, range, text}; the source of docs/knobs.md. Static storage. */
HVD_EXPORT const char* hvd_knobs_json(void);
/* 0, or the NCCL version code, of the loaded backends: "nccl", "cuda", "rocm"; 1: "gloo" (the built-in transport), and
 * "mpi" once its plugin is loaded. */
HVD_EXPORT int32_t hvd_backend_built(const char* name);
/* Writes one line for people: which NCCL, driver and GPUs GPU tensors would use here, or why none. 1: both libraries
 * are there; 0: not. Opens the driver: for a process that ends soon, as horovodrun --check-build starts one. */
HVD_EXPORT int32_t hvd_describe_gpus(char* text, int32_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* HOROVOD_HOROVOD_H_ */
