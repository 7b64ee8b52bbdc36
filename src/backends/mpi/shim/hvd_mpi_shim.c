/* The only file of the project that includes mpi.h: forwards the table of hvd_mpi_shim.h to the MPI of the place.
 * Needs MPI 3. Built by `horovodrun --build-mpi`, which runs: mpicc -std=c99 -O2 -fPIC -shared hvd_mpi_shim.c */
#include "hvd_mpi_shim.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#if defined(OPEN_MPI)
#define COMPILED_FOR "Open MPI"
#elif defined(MPICH_VERSION) || defined(MPICH_NAME)
#define COMPILED_FOR "MPICH"
#else
#define COMPILED_FOR ""
#endif

/* The compiler has to belong to the MPI that starts the ranks. */
#if (defined(HVD_MPI_OF_OPEN_MPI) && !defined(OPEN_MPI)) || (defined(HVD_MPI_OF_MPICH) && defined(OPEN_MPI))
#error "HVD_MPI_OTHER_KIND"
#endif

#if defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

enum { TAG = 4711 }; /* of messages between two ranks; our communicators carry nothing else */

struct hvd_mpi_comm {
  MPI_Comm comm;
};
struct hvd_mpi_request {
  MPI_Request request;
};

/* ---- the library and its life ---- */

static int version_text(char* text) {
  int length = 0;
  if (MPI_MAX_LIBRARY_VERSION_STRING > HVD_MPI_TEXT) return MPI_ERR_OTHER;
  return MPI_Get_library_version(text, &length);
}

static int is_started(int32_t* started, int32_t* ended) {
  int flag = 0, code = MPI_Initialized(&flag);
  *started = flag;
  if (code == MPI_SUCCESS) code = MPI_Finalized(&flag);
  *ended = flag;
  return code;
}

static int level_of(int mpi_level) {
  if (mpi_level == MPI_THREAD_MULTIPLE) return HVD_MPI_MULTIPLE;
  if (mpi_level == MPI_THREAD_SERIALIZED) return HVD_MPI_SERIALIZED;
  return mpi_level == MPI_THREAD_FUNNELED ? HVD_MPI_FUNNELED : HVD_MPI_SINGLE;
}

static int start(int32_t wanted_level, int32_t* level) {
  static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
  int provided = MPI_THREAD_SINGLE;
  int code = MPI_Init_thread(NULL, NULL, levels[wanted_level], &provided);
  *level = level_of(provided);
  return code;
}

static int thread_level(int32_t* level) {
  int provided = MPI_THREAD_SINGLE;
  int code = MPI_Query_thread(&provided);
  *level = level_of(provided);
  return code;
}

static int end(void) { return MPI_Finalize(); }
static void abort_job(int32_t code) { MPI_Abort(MPI_COMM_WORLD, code); }

static void error_text(int code, char* text) {
  int length = 0;
  if (MPI_MAX_ERROR_STRING > HVD_MPI_TEXT || MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    strcpy(text, "unknown error");
}

/* ---- types and reductions ---- */

static MPI_Datatype types[HVD_MPI_DTYPES];
static MPI_Op own_ops[HVD_MPI_DTYPES][HVD_MPI_REDUCTIONS];
static hvd_mpi_reduce reduce_function;

enum { FLOAT16 = 6, FLOAT32 = 7, FLOAT64 = 8, BOOL = 9, BFLOAT16 = 10 };

/* MPI passes the type to a user's reduction, but not the operation, so there is one function for each. */
#define OWN(name, dtype, op)                                                \
  static void name(void* in, void* inout, int* count, MPI_Datatype* type) { \
    (void)type;                                                             \
    reduce_function(dtype, op, in, inout, *count);                          \
  }
OWN(f16_sum, FLOAT16, HVD_MPI_SUM)
OWN(f16_min, FLOAT16, HVD_MPI_MIN)
OWN(f16_max, FLOAT16, HVD_MPI_MAX)
OWN(f16_product, FLOAT16, HVD_MPI_PRODUCT)
OWN(bf16_sum, BFLOAT16, HVD_MPI_SUM)
OWN(bf16_min, BFLOAT16, HVD_MPI_MIN)
OWN(bf16_max, BFLOAT16, HVD_MPI_MAX)
OWN(bf16_product, BFLOAT16, HVD_MPI_PRODUCT)
/* What MPI makes of a NaN in a minimum depends on the order; ours is always a NaN. */
OWN(f32_min, FLOAT32, HVD_MPI_MIN)
OWN(f32_max, FLOAT32, HVD_MPI_MAX)
OWN(f64_min, FLOAT64, HVD_MPI_MIN)
OWN(f64_max, FLOAT64, HVD_MPI_MAX)
OWN(bool_sum, BOOL, HVD_MPI_SUM)
OWN(bool_min, BOOL, HVD_MPI_MIN)
OWN(bool_max, BOOL, HVD_MPI_MAX)
OWN(bool_product, BOOL, HVD_MPI_PRODUCT)

static const struct {
  int dtype, op;
  MPI_User_function* function;
} owns[] = {
    {FLOAT16, HVD_MPI_SUM, f16_sum},   {FLOAT16, HVD_MPI_MIN, f16_min},
    {FLOAT16, HVD_MPI_MAX, f16_max},   {FLOAT16, HVD_MPI_PRODUCT, f16_product},
    {BFLOAT16, HVD_MPI_SUM, bf16_sum}, {BFLOAT16, HVD_MPI_MIN, bf16_min},
    {BFLOAT16, HVD_MPI_MAX, bf16_max}, {BFLOAT16, HVD_MPI_PRODUCT, bf16_product},
    {FLOAT32, HVD_MPI_MIN, f32_min},   {FLOAT32, HVD_MPI_MAX, f32_max},
    {FLOAT64, HVD_MPI_MIN, f64_min},   {FLOAT64, HVD_MPI_MAX, f64_max},
    {BOOL, HVD_MPI_SUM, bool_sum},     {BOOL, HVD_MPI_MIN, bool_min},
    {BOOL, HVD_MPI_MAX, bool_max},     {BOOL, HVD_MPI_PRODUCT, bool_product},
};

static int prepare(hvd_mpi_reduce reduce) {
  size_t i, j;
  const MPI_Datatype all[HVD_MPI_DTYPES] = {
      MPI_UINT8_T, MPI_INT8_T, MPI_UINT16_T, MPI_INT16_T,  MPI_INT32_T,         MPI_INT64_T,         MPI_UINT16_T,
      MPI_FLOAT,   MPI_DOUBLE, MPI_UINT8_T,  MPI_UINT16_T, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX};
  memcpy(types, all, sizeof all);
  reduce_function = reduce;
  for (i = 0; i < HVD_MPI_DTYPES; i++)
    for (j = 0; j < HVD_MPI_REDUCTIONS; j++) own_ops[i][j] = MPI_OP_NULL;
  for (i = 0; i < sizeof owns / sizeof owns[0]; i++) {
    int code = MPI_Op_create(owns[i].function, 1, &own_ops[owns[i].dtype][owns[i].op]);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

static MPI_Op op_of(int32_t dtype, int32_t op) {
  if (own_ops[dtype][op] != MPI_OP_NULL) return own_ops[dtype][op];
  switch (op) {
    case HVD_MPI_MIN: return MPI_MIN;
    case HVD_MPI_MAX: return MPI_MAX;
    case HVD_MPI_PRODUCT: return MPI_PROD;
    default: return MPI_SUM;
  }
}

/* ---- communicators ---- */

static hvd_mpi_comm* new_comm(MPI_Comm comm) {
  hvd_mpi_comm* made = malloc(sizeof *made);
  if (made != NULL) made->comm = comm;
  return made;
}

static int comm_view(const void* handle, hvd_mpi_comm** comm) {
  MPI_Comm given = MPI_COMM_WORLD;
  if (handle != NULL) memcpy(&given, handle, sizeof given);
  *comm = new_comm(given);
  return *comm != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static int comm_keep(hvd_mpi_comm* comm) { return MPI_Comm_set_errhandler(comm->comm, MPI_ERRORS_RETURN); }

static int own_comm(int code, MPI_Comm made, hvd_mpi_comm** comm) {
  if (code != MPI_SUCCESS) return code;
  code = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  if (code != MPI_SUCCESS) return code;
  *comm = new_comm(made);
  return *comm != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static int comm_of_ranks(hvd_mpi_comm* from, const int32_t* ranks, int32_t count, int32_t tag, hvd_mpi_comm** comm) {
  MPI_Group all, some;
  MPI_Comm made = MPI_COMM_NULL;
  int code = MPI_Comm_group(from->comm, &all);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Group_incl(all, count, ranks, &some);
  MPI_Group_free(&all);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Comm_create_group(from->comm, some, tag, &made);
  MPI_Group_free(&some);
  return own_comm(code, made, comm);
}

static int comm_of_host(hvd_mpi_comm* from, hvd_mpi_comm** comm) {
  MPI_Comm made = MPI_COMM_NULL;
  int rank = 0, code = MPI_Comm_rank(from->comm, &rank);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Comm_split_type(from->comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &made);
  return own_comm(code, made, comm);
}

static int comm_place(hvd_mpi_comm* comm, int32_t* rank, int32_t* size) {
  int code = MPI_Comm_rank(comm->comm, rank);
  return code == MPI_SUCCESS ? MPI_Comm_size(comm->comm, size) : code;
}

static int comm_same_ranks(hvd_mpi_comm* one, hvd_mpi_comm* other, int32_t* same) {
  int result = MPI_UNEQUAL, code = MPI_Comm_compare(one->comm, other->comm, &result);
  *same = result == MPI_IDENT || result == MPI_CONGRUENT;
  return code;
}

static void comm_forget(hvd_mpi_comm* comm) { free(comm); }

/* ---- collectives ---- */

/* Posts `call`, whose last argument is &made->request. */
#define POST(call)                                \
  do {                                            \
    int code;                                     \
    hvd_mpi_request* made = malloc(sizeof *made); \
    if (made == NULL) return MPI_ERR_NO_MEM;      \
    code = call;                                  \
    if (code == MPI_SUCCESS)                      \
      *request = made;                            \
    else                                          \
      free(made);                                 \
    return code;                                  \
  } while (0)

static const void* or_in_place(const void* in) { return in != NULL ? in : MPI_IN_PLACE; }

static int comm_duplicate(hvd_mpi_comm* from, hvd_mpi_comm** comm, hvd_mpi_request** request) {
  *comm = new_comm(MPI_COMM_NULL);
  if (*comm == NULL) return MPI_ERR_NO_MEM;
  POST(MPI_Comm_idup(from->comm, &(*comm)->comm, &made->request));
}

static int barrier(hvd_mpi_comm* comm, hvd_mpi_request** request) { POST(MPI_Ibarrier(comm->comm, &made->request)); }

static int allreduce(hvd_mpi_comm* comm, const void* in, void* out, int32_t count, int32_t dtype, int32_t op,
                     hvd_mpi_request** request) {
  POST(MPI_Iallreduce(or_in_place(in), out, count, types[dtype], op_of(dtype, op), comm->comm, &made->request));
}

static int reduce(hvd_mpi_comm* comm, const void* in, void* out, int32_t count, int32_t dtype, int32_t op, int32_t root,
                  hvd_mpi_request** request) {
  POST(MPI_Ireduce(in, out, count, types[dtype], op_of(dtype, op), root, comm->comm, &made->request));
}

static int reduce_scatter(hvd_mpi_comm* comm, const void* in, void* out, const int32_t* counts, int32_t dtype,
                          int32_t op, hvd_mpi_request** request) {
  POST(MPI_Ireduce_scatter(in, out, counts, types[dtype], op_of(dtype, op), comm->comm, &made->request));
}

static int broadcast(hvd_mpi_comm* comm, void* data, int32_t bytes, int32_t root, hvd_mpi_request** request) {
  POST(MPI_Ibcast(data, bytes, MPI_BYTE, root, comm->comm, &made->request));
}

static int allgather(hvd_mpi_comm* comm, const void* in, int32_t bytes, void* out, const int32_t* counts,
                     const int32_t* offsets, hvd_mpi_request** request) {
  POST(MPI_Iallgatherv(in, bytes, MPI_BYTE, out, counts, offsets, MPI_BYTE, comm->comm, &made->request));
}

static int alltoall(hvd_mpi_comm* comm, const void* in, const int32_t* sent, const int32_t* sent_at, void* out,
                    const int32_t* received, const int32_t* received_at, hvd_mpi_request** request) {
  POST(MPI_Ialltoallv(in, sent, sent_at, MPI_BYTE, out, received, received_at, MPI_BYTE, comm->comm, &made->request));
}

static int send(hvd_mpi_comm* comm, const void* data, int32_t bytes, int32_t to, hvd_mpi_request** request) {
  POST(MPI_Isend(data, bytes, MPI_BYTE, to, TAG, comm->comm, &made->request));
}

static int receive(hvd_mpi_comm* comm, void* data, int32_t bytes, int32_t from, hvd_mpi_request** request) {
  POST(MPI_Irecv(data, bytes, MPI_BYTE, from, TAG, comm->comm, &made->request));
}

static int test(hvd_mpi_request* request, int32_t* done) {
  int flag = 0, code = MPI_Test(&request->request, &flag, MPI_STATUS_IGNORE);
  *done = code != MPI_SUCCESS || flag;
  if (*done) free(request);
  return code;
}

static const hvd_mpi_api api = {
    HVD_MPI_API_VERSION,
    sizeof(hvd_mpi_api),
    COMPILED_FOR,
    version_text,
    is_started,
    start,
    thread_level,
    prepare,
    end,
    abort_job,
    error_text,
    sizeof(MPI_Comm),
    comm_view,
    comm_duplicate,
    comm_keep,
    comm_of_ranks,
    comm_of_host,
    comm_place,
    comm_same_ranks,
    comm_forget,
    barrier,
    allreduce,
    reduce,
    reduce_scatter,
    broadcast,
    allgather,
    alltoall,
    send,
    receive,
    test,
};

EXPORT const hvd_mpi_api* hvd_mpi_api_v1(void);
EXPORT const hvd_mpi_api* hvd_mpi_api_v1(void) { return &api; }
