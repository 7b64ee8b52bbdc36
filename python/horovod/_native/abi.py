"""The C ABI in ctypes: enums, structs and prototypes of include/horovod/horovod.h, in the header's order and names.

tests/python/single/test_header.py compares everything here with the header and with the layout of a C compiler.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import Any, NamedTuple

ABI_VERSION = 0x00010007
HOST_DEVICE = -1
WORLD_SET = 0
NO_RESETS = -1


class Code(IntEnum):
    OK = 0
    INVALID_ARGUMENT = 1
    PRECONDITION = 2
    ABORTED = 3
    UNKNOWN = 4
    PEER_LOST = 5
    TIMED_OUT = 6
    NOT_INITIALIZED = 7
    REMOVED = 8


class DType(IntEnum):
    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BOOL = 9
    BFLOAT16 = 10
    COMPLEX64 = 11
    COMPLEX128 = 12


class Kind(IntEnum):
    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    ALLTOALL = 3
    REDUCESCATTER = 4
    BARRIER = 5
    JOIN = 6
    REDUCE = 9
    GATHER = 10
    SCATTER = 11
    SEND = 12
    RECEIVE = 13
    PROBE = 14


class ReduceOp(IntEnum):
    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5
    BIT_AND = 6
    BIT_OR = 7
    BIT_XOR = 8


class FailureKind(IntEnum):
    FAILURE_UNKNOWN = 0
    FAILURE_EXCEPTION = 1
    FAILURE_EXIT = 2
    FAILURE_SIGNAL = 3
    FAILURE_LOST = 4
    FAILURE_SHUTDOWN = 5
    FAILURE_SILENT = 6
    FAILURE_INTERNAL = 7
    FAILURE_DEADLINE = 8


class HostsChange(IntEnum):
    HOSTS_REMOVED = 1
    HOSTS_ADDED = 2
    HOSTS_MIXED = 3


class DriverActionKind(IntEnum):
    DRIVER_START = 1
    DRIVER_STOP = 2
    DRIVER_NOTIFY = 3
    DRIVER_ASSIGN = 4
    DRIVER_LEAVE = 5
    DRIVER_SAY = 6
    DRIVER_FAIL = 7
    DRIVER_FINISH = 8


Handle = c_int64
DriverPointer = c_void_p
ListenerPointer = c_void_p
ConnectionPointer = c_void_p
ALLOCATE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_int32, c_int32, c_int32, POINTER(c_int64))
DONE = ctypes.CFUNCTYPE(None, c_void_p, Handle, c_int)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("device", c_int32),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("data", c_void_p),
        ("stream", c_void_p),
        ("ready_event", c_void_p),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("reduce_op", c_int32),
        ("process_set", c_int32),
        ("root_rank", c_int32),
        ("splits_count", c_int32),
        ("splits", POINTER(c_int32)),
        ("name", c_char_p),
        ("prescale_factor", c_double),
        ("postscale_factor", c_double),
        ("input", Tensor),
        ("output", Tensor),
    ]


class SubmitOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("wait_follows", c_uint32),
        ("allocate", ALLOCATE),
        ("allocate_context", c_void_p),
        ("done", DONE),
        ("done_context", c_void_p),
    ]


class Failure(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("rank", c_int32),
        ("is_own", c_int32),
        ("pid", c_int64),
        ("host", c_char_p),
        ("type", c_char_p),
        ("message", c_char_p),
    ]


class ElasticEvent(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("change", c_int32),
        ("timestamp", c_double),
    ]


class DriverSettings(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("min_np", c_int32),
        ("max_np", c_int32),
        ("np", c_int32),
        ("reset_limit", c_int32),
        ("reserved", c_int32),
        ("elastic_timeout", c_double),
        ("start_timeout", c_double),
        ("cooldown_lower", c_double),
        ("cooldown_upper", c_double),
        ("seed", c_uint64),
    ]


class DriverAction(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("worker", c_int64),
        ("generation", c_int64),
        ("host", c_char_p),
        ("text", c_char_p),
        ("slot", c_int32),
        ("rank", c_int32),
        ("size", c_int32),
        ("local_rank", c_int32),
        ("local_size", c_int32),
        ("cross_rank", c_int32),
        ("cross_size", c_int32),
        ("change", c_int32),
        ("level", c_int32),
        ("exit_code", c_int32),
        ("timestamp", c_double),
    ]


class Prototype(NamedTuple):
    result: Any
    arguments: list[Any]
    blocks: bool = False  # releases the GIL; other functions return at once and keep it, which is cheaper


PROTOTYPES: dict[str, Prototype] = {
    "hvd_abi_version": Prototype(c_uint32, []),
    "hvd_version": Prototype(c_char_p, []),
    "hvd_last_error": Prototype(c_char_p, []),
    "hvd_last_failure": Prototype(c_int32, [POINTER(Failure)]),
    "hvd_world_failure": Prototype(c_int32, [POINTER(Failure)]),
    "hvd_report_end": Prototype(c_int, [POINTER(Failure)]),
    "hvd_init": Prototype(c_int, [c_int32, POINTER(c_int32), POINTER(c_int32)], blocks=True),
    "hvd_shutdown": Prototype(c_int, [], blocks=True),
    "hvd_is_initialized": Prototype(c_int32, []),
    "hvd_rank": Prototype(c_int32, []),
    "hvd_size": Prototype(c_int32, []),
    "hvd_local_rank": Prototype(c_int32, []),
    "hvd_local_size": Prototype(c_int32, []),
    "hvd_cross_rank": Prototype(c_int32, []),
    "hvd_cross_size": Prototype(c_int32, []),
    "hvd_is_homogeneous": Prototype(c_int32, []),
    "hvd_add_process_set": Prototype(c_int32, [POINTER(c_int32), c_int32], blocks=True),
    "hvd_remove_process_set": Prototype(c_int32, [c_int32], blocks=True),
    "hvd_form_process_set": Prototype(c_int, [POINTER(c_int32), c_int32, POINTER(Handle)]),
    "hvd_leave_process_set": Prototype(c_int, [c_int32]),
    "hvd_process_set_size": Prototype(c_int32, [c_int32]),
    "hvd_process_set_rank": Prototype(c_int32, [c_int32]),
    "hvd_process_set_ranks": Prototype(c_int32, [c_int32, POINTER(c_int32), c_int32]),
    "hvd_process_set_ids": Prototype(c_int32, [POINTER(c_int32), c_int32]),
    "hvd_submit": Prototype(c_int, [POINTER(Request), c_int32, POINTER(SubmitOptions), POINTER(Handle)]),
    "hvd_submit_many": Prototype(c_int, [POINTER(Request), c_int32, POINTER(SubmitOptions), POINTER(Handle)]),
    "hvd_poll": Prototype(c_int32, [Handle]),
    "hvd_when_done": Prototype(c_int, [Handle, DONE, c_void_p]),
    "hvd_wait": Prototype(c_int, [Handle, c_double], blocks=True),
    "hvd_wait_many": Prototype(c_int, [POINTER(Handle), c_int32, c_double], blocks=True),
    "hvd_result": Prototype(c_int, [Handle, c_int32, POINTER(Tensor)]),
    "hvd_take_result": Prototype(c_int, [Handle, c_int32, POINTER(Tensor)]),
    "hvd_free": Prototype(None, [c_void_p]),
    "hvd_wait_on_stream": Prototype(c_int, [Handle, c_void_p, c_double], blocks=True),
    "hvd_device_accepts": Prototype(c_int32, [c_int32, c_int32, c_int32]),
    "hvd_dlpack_outputs_create": Prototype(c_void_p, [c_void_p, c_int32, c_int32, c_int32]),
    "hvd_dlpack_allocate": Prototype(c_void_p, [c_void_p, c_int32, c_int32, c_int32, POINTER(c_int64)]),
    "hvd_dlpack_outputs_take": Prototype(c_void_p, [c_void_p, c_int32]),
    "hvd_dlpack_outputs_destroy": Prototype(None, [c_void_p], blocks=True),
    "hvd_completes_on_stream": Prototype(c_int32, [c_int32]),
    "hvd_received_splits": Prototype(c_int32, [Handle, c_int32, POINTER(c_int32), c_int32]),
    "hvd_result_value": Prototype(c_int32, [Handle]),
    "hvd_release": Prototype(None, [Handle]),
    "hvd_release_many": Prototype(None, [POINTER(Handle), c_int32]),
    "hvd_mpi_load": Prototype(c_int, [c_char_p], blocks=True),
    "hvd_mpi_version": Prototype(c_char_p, []),
    "hvd_mpi_use": Prototype(c_int, [c_void_p, POINTER(c_int32), c_int32]),
    "hvd_mpi_expected": Prototype(c_int32, []),
    "hvd_mpi_offer": Prototype(c_int, [c_char_p, POINTER(c_int32), c_int32]),
    "hvd_mpi_obstacle": Prototype(c_char_p, []),
    "hvd_mpi_enabled": Prototype(c_int32, []),
    "hvd_gloo_enabled": Prototype(c_int32, []),
    "hvd_mpi_threads_supported": Prototype(c_int32, []),
    "hvd_mpi_end": Prototype(None, [c_int32], blocks=True),
    "hvd_elastic_next_event": Prototype(c_int, [c_double, POINTER(ElasticEvent)], blocks=True),
    "hvd_elastic_stop_waiting": Prototype(None, []),
    "hvd_elastic_leave": Prototype(c_int, [c_char_p], blocks=True),
    "hvd_listen": Prototype(
        c_int, [POINTER(c_char_p), c_int32, c_char_p, POINTER(ListenerPointer), POINTER(c_int32)], blocks=True
    ),
    "hvd_accept": Prototype(c_int, [ListenerPointer, POINTER(ConnectionPointer)], blocks=True),
    "hvd_listener_close": Prototype(None, [ListenerPointer]),
    "hvd_listener_destroy": Prototype(None, [ListenerPointer]),
    "hvd_connect": Prototype(
        c_int,
        [
            c_char_p,
            POINTER(c_char_p),
            POINTER(c_int32),
            c_int32,
            c_char_p,
            c_double,
            POINTER(ConnectionPointer),
        ],
        blocks=True,
    ),
    "hvd_connection_send": Prototype(c_int, [ConnectionPointer, c_void_p, c_int64, POINTER(c_int64)], blocks=True),
    "hvd_connection_receive": Prototype(
        c_int, [ConnectionPointer, c_void_p, c_int64, c_double, POINTER(c_int64)], blocks=True
    ),
    "hvd_connection_local_address": Prototype(c_char_p, [ConnectionPointer]),
    "hvd_connection_close": Prototype(None, [ConnectionPointer]),
    "hvd_connection_destroy": Prototype(None, [ConnectionPointer]),
    "hvd_driver_create": Prototype(c_int, [POINTER(DriverSettings), c_double, POINTER(DriverPointer)]),
    "hvd_driver_destroy": Prototype(None, [DriverPointer]),
    "hvd_driver_hosts_discovered": Prototype(
        c_int, [DriverPointer, c_double, POINTER(c_char_p), POINTER(c_int32), c_int32]
    ),
    "hvd_driver_worker_ready": Prototype(c_int, [DriverPointer, c_double, c_int64, c_int32]),
    "hvd_driver_worker_exited": Prototype(c_int, [DriverPointer, c_double, c_int64, c_int32, c_int32]),
    "hvd_driver_worker_leaving": Prototype(c_int, [DriverPointer, c_double, c_int64, c_char_p]),
    "hvd_driver_start_failed": Prototype(c_int, [DriverPointer, c_double, c_int64, c_char_p]),
    "hvd_driver_host_lost": Prototype(c_int, [DriverPointer, c_double, c_char_p, c_char_p]),
    "hvd_driver_stop": Prototype(c_int, [DriverPointer, c_double, c_char_p, c_int32]),
    "hvd_driver_timer": Prototype(c_int, [DriverPointer, c_double]),
    "hvd_driver_next_action": Prototype(c_int32, [DriverPointer, POINTER(DriverAction)]),
    "hvd_driver_next_timer": Prototype(c_int, [DriverPointer, c_double, POINTER(c_double)]),
    "hvd_driver_waiting_for": Prototype(c_char_p, [DriverPointer]),
    "hvd_driver_finished": Prototype(c_int32, [DriverPointer]),
    "hvd_start_timeline": Prototype(c_int, [c_char_p, c_int32], blocks=True),
    "hvd_stop_timeline": Prototype(c_int, [], blocks=True),
    "hvd_knobs_json": Prototype(c_char_p, []),
    "hvd_describe_gpus": Prototype(c_int32, [c_char_p, c_int32], blocks=True),
    "hvd_backend_built": Prototype(c_int32, [c_char_p]),
}
