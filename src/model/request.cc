#include "model/request.h"

namespace hvd {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::allreduce: return "allreduce";
    case Kind::allgather: return "allgather";
    case Kind::broadcast: return "broadcast";
    case Kind::alltoall: return "alltoall";
    case Kind::reducescatter: return "reducescatter";
    case Kind::barrier: return "barrier";
    case Kind::join: return "join";
    case Kind::add_process_set: return "add_process_set";
    case Kind::remove_process_set: return "remove_process_set";
    case Kind::reduce: return "reduce";
    case Kind::gather: return "gather";
    case Kind::scatter: return "scatter";
    case Kind::transfer: return "transfer";
    case Kind::probe: return "probe";
    case Kind::form_process_set: return "form_process_set";
    case Kind::leave_process_set: return "leave_process_set";
  }
  return "?";
}

std::string_view timeline_name(Kind kind) {
  switch (kind) {
    case Kind::allreduce: return "ALLREDUCE";
    case Kind::allgather: return "ALLGATHER";
    case Kind::broadcast: return "BROADCAST";
    case Kind::alltoall: return "ALLTOALL";
    case Kind::reducescatter: return "REDUCESCATTER";
    case Kind::barrier: return "BARRIER";
    case Kind::join: return "JOIN";
    case Kind::add_process_set: return "ADD_PROCESS_SET";
    case Kind::remove_process_set: return "REMOVE_PROCESS_SET";
    case Kind::reduce: return "REDUCE";
    case Kind::gather: return "GATHER";
    case Kind::scatter: return "SCATTER";
    case Kind::transfer: return "TRANSFER";
    case Kind::probe: return "PROBE";
    case Kind::form_process_set: return "FORM_PROCESS_SET";
    case Kind::leave_process_set: return "LEAVE_PROCESS_SET";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::average: return "average";
    case ReduceOp::sum: return "sum";
    case ReduceOp::adasum: return "adasum";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::product: return "product";
    case ReduceOp::bit_and: return "bitwise and";
    case ReduceOp::bit_or: return "bitwise or";
    case ReduceOp::bit_xor: return "bitwise xor";
  }
  return "?";
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); i++) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

int64_t elements_of(const Shape& shape) {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

int64_t row_elements_of(const Shape& shape) {
  int64_t product = 1;
  for (size_t i = 1; i < shape.size(); i++) product *= shape[i];
  return product;
}

size_t bytes_of(const Request& request) {
  return static_cast<size_t>(elements_of(request.shape)) * size_of(request.dtype);
}

}  // namespace hvd
