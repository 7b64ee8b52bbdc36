/* What libhorovod.so knows of MPI: a table of functions over opaque handles. MPI has no common binary interface, so the
 * one file behind this table, hvd_mpi_shim.c, is compiled against the mpi.h of the place (`horovodrun --build-mpi`);
 * the library itself is not. Plain C on both sides: any compiler will do.
 *
 * Functions that return int return 0 or MPI's error code, for error_text. Communicators of the table return errors,
 * they do not end the program. Thread rule: that of the thread level MPI was started with. */
#ifndef HVD_MPI_SHIM_H_
#define HVD_MPI_SHIM_H_

#include <stddef.h>
#include <stdint.h>

#define HVD_MPI_API_VERSION 1
#define HVD_MPI_ENTRY "hvd_mpi_api_v1" /* all that the plugin exports: const hvd_mpi_api* (*)(void) */
#define HVD_MPI_TEXT 8192              /* enough for every text below */

enum { /* thread levels: from not at all to freely */
       HVD_MPI_SINGLE = 0,
       HVD_MPI_FUNNELED = 1,
       HVD_MPI_SERIALIZED = 2,
       HVD_MPI_MULTIPLE = 3
};

enum { /* element types; the numbers are those of hvd_dtype in horovod.h */
       HVD_MPI_DTYPES = 13
};

enum { /* reductions; the numbers are those of hvd_reduce_op in horovod.h */
       HVD_MPI_SUM = 1,
       HVD_MPI_MIN = 3,
       HVD_MPI_MAX = 4,
       HVD_MPI_PRODUCT = 5,
       HVD_MPI_REDUCTIONS = 6
};

typedef struct hvd_mpi_comm hvd_mpi_comm;
typedef struct hvd_mpi_request hvd_mpi_request;

/* inout[i] = in[i] op inout[i], for what MPI itself cannot reduce or reduces otherwise than we promise. */
typedef void (*hvd_mpi_reduce)(int32_t dtype, int32_t op, const void* in, void* inout, int32_t count);

typedef struct hvd_mpi_api {
  uint32_t version; /* HVD_MPI_API_VERSION */
  uint32_t struct_size;

  /* ---- the library; these may be called before start and after end ---- */
  const char* compiled_for;        /* "Open MPI", "MPICH" or "": whose mpi.h the plugin was compiled with */
  int (*version_text)(char* text); /* what runs: "Open MPI v4.1.4, package: ..." */
  int (*is_started)(int32_t* started, int32_t* ended);

  /* ---- its life ---- */
  int (*start)(int32_t wanted_level, int32_t* level); /* MPI_Init_thread */
  int (*thread_level)(int32_t* level);
  int (*prepare)(hvd_mpi_reduce reduce); /* once, after start, before any reduction */
  int (*end)(void);                      /* MPI_Finalize */
  void (*abort)(int32_t code);           /* ends the job, without a word */
  void (*error_text)(int code, char* text);

  /* ---- communicators ---- */
  size_t handle_bytes; /* sizeof(MPI_Comm) */
  /* `handle` is the address of an MPI_Comm; NULL: MPI_COMM_WORLD. The result is a view of it and owns nothing. */
  int (*comm_view)(const void* handle, hvd_mpi_comm** comm);
  /* Starts to make a communicator of the same ranks that is ours alone; *comm may be used once the request is done. */
  int (*comm_duplicate)(hvd_mpi_comm* from, hvd_mpi_comm** comm, hvd_mpi_request** request);
  int (*comm_keep)(hvd_mpi_comm* comm); /* when it is made: errors are returned from now on */
  /* Collective over those ranks alone; the i-th of them gets rank i. Blocks. */
  int (*comm_of_ranks)(hvd_mpi_comm* from, const int32_t* ranks, int32_t count, int32_t tag, hvd_mpi_comm** comm);
  /* The ranks that share memory with this one, in order. Collective over all of them; blocks. */
  int (*comm_of_host)(hvd_mpi_comm* from, hvd_mpi_comm** comm);
  int (*comm_place)(hvd_mpi_comm* comm, int32_t* rank, int32_t* size);
  int (*comm_same_ranks)(hvd_mpi_comm* one, hvd_mpi_comm* other, int32_t* same); /* the same ones in the same order */
  void (*comm_forget)(hvd_mpi_comm* comm);                                       /* frees the handle alone */

  /* ---- collectives; none blocks. Buffers must stay until the request is done. `in` NULL: in place ---- */
  int (*barrier)(hvd_mpi_comm* comm, hvd_mpi_request** request);
  int (*allreduce)(hvd_mpi_comm* comm, const void* in, void* out, int32_t count, int32_t dtype, int32_t op,
                   hvd_mpi_request** request);
  int (*reduce)(hvd_mpi_comm* comm, const void* in, void* out, int32_t count, int32_t dtype, int32_t op, int32_t root,
                hvd_mpi_request** request);
  int (*reduce_scatter)(hvd_mpi_comm* comm, const void* in, void* out, const int32_t* counts, int32_t dtype, int32_t op,
                        hvd_mpi_request** request);
  /* In bytes from here on. The arrays must stay, too. */
  int (*broadcast)(hvd_mpi_comm* comm, void* data, int32_t bytes, int32_t root, hvd_mpi_request** request);
  int (*allgather)(hvd_mpi_comm* comm, const void* in, int32_t bytes, void* out, const int32_t* counts,
                   const int32_t* offsets, hvd_mpi_request** request);
  int (*alltoall)(hvd_mpi_comm* comm, const void* in, const int32_t* sent, const int32_t* sent_at, void* out,
                  const int32_t* received, const int32_t* received_at, hvd_mpi_request** request);
  int (*send)(hvd_mpi_comm* comm, const void* data, int32_t bytes, int32_t to, hvd_mpi_request** request);
  int (*receive)(hvd_mpi_comm* comm, void* data, int32_t bytes, int32_t from, hvd_mpi_request** request);

  /* Moves everything that is under way a little. *done: the request has ended and its handle is gone. */
  int (*test)(hvd_mpi_request* request, int32_t* done);
} hvd_mpi_api;

#endif /* HVD_MPI_SHIM_H_ */
