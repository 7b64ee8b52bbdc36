#include "adapters/tensorflow/call.h"

#include <exception>
#include <memory>
#include <utility>

#include "adapters/tensorflow/tf_objects.h"

namespace hvd::tensorflow {
namespace {

struct TypePair {
  int tf;
  hvd_dtype hvd;
  size_t size;
};
constexpr TypePair kTypes[] = {
    {1, HVD_FLOAT32, 4}, {2, HVD_FLOAT64, 8},      {3, HVD_INT32, 4},    {4, HVD_UINT8, 1}, {5, HVD_INT16, 2},
    {6, HVD_INT8, 1},    {8, HVD_COMPLEX64, 8},    {9, HVD_INT64, 8},    {10, HVD_BOOL, 1}, {14, HVD_BFLOAT16, 2},
    {17, HVD_UINT16, 2}, {18, HVD_COMPLEX128, 16}, {19, HVD_FLOAT16, 2},
};

const TypePair* find_type(int tf) {
  for (const TypePair& each : kTypes) {
    if (each.tf == tf) return &each;
  }
  return nullptr;
}

size_t count_elements(const int64_t* shape, int32_t ndim) {
  size_t count = 1;
  for (int32_t i = 0; i < ndim; i++) count *= static_cast<size_t>(shape[i]);
  return count;
}

class Call {
 public:
  Call(const Node& node, TF_OpKernelContext* context, Finish finish)
      : node_(node), context_(context), finish_(std::move(finish)) {}

  // Takes ownership of the call: it ends in finish(), now or when the engine is done.
  static void start(std::unique_ptr<Call> call);

 private:
  struct Failure {
    int code = 0;  // 0: none
    std::string text;
  };

  bool makes_outputs_first() const { return node_.verb.kind == HVD_ALLREDUCE || node_.verb.kind == HVD_BROADCAST; }
  Failure take_inputs();
  Failure make_output(int index);
  Failure read_splits();
  std::vector<hvd_request> describe();
  TF_Tensor* allocate(int index, int tf_type, size_t item_size, const int64_t* shape, int32_t ndim);
  Failure complete(hvd_handle handle, hvd_code code);
  Failure give_results(hvd_handle handle);
  static void finish(std::unique_ptr<Call> call, const Failure& failure);

  static void* on_allocate(void* context, int32_t index, int32_t dtype, int32_t ndim, const int64_t* shape);
  static void on_done(void* context, hvd_handle handle, hvd_code code);

  const Node& node_;
  TF_OpKernelContext* context_;
  Finish finish_;
  int32_t count_ = 0;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::string> names_;
  std::vector<const TypePair*> types_;
  Tensor splits_;
  TfStatus status_;  // of the last allocation, for the message
};

// An output of known size uses its input's memory if nothing else needs that, which TensorFlow can only tell while we
// hold no reference to the input. So shapes are read first, and inputs are fetched again afterwards.
Call::Failure Call::make_output(int index) {
  const std::vector<int64_t>& shape = shapes_[static_cast<size_t>(index)];
  TfStatus status;
  int forwarded = -1;
  Tensor output(api().ForwardInputOrAllocateOutput(context_, &index, 1, index, shape.data(),
                                                   static_cast<int>(shape.size()), &forwarded, status.get()));
  if (!status.ok()) return {kTfUnknown, status.message()};
  outputs_[static_cast<size_t>(index)] = std::move(output);
  return {};
}

Call::Failure Call::take_inputs() {
  bool has_splits = node_.verb.kind == HVD_ALLTOALL;
  count_ = api().NumInputs(context_) - (has_splits ? 1 : 0);
  outputs_.resize(static_cast<size_t>(count_));
  for (int i = 0; i < count_; i++) {
    auto fetch = [&]() -> Tensor {
      TF_Tensor* raw = nullptr;
      api().GetInput(context_, i, &raw, status_.get());
      return Tensor(status_.ok() ? raw : nullptr);
    };
    Tensor input = fetch();
    if (!input) return {kTfUnknown, status_.message()};
    const TypePair* type = find_type(api().TensorType(input.get()));
    if (type == nullptr) return {kTfInvalidArgument, "this type of tensor cannot be sent"};
    types_.push_back(type);
    shapes_.push_back(shape_of(input.get()));
    if (makes_outputs_first()) {
      input.reset();
      if (Failure failure = make_output(i); failure.code != 0) return failure;
      input = fetch();
      if (!input) return {kTfUnknown, status_.message()};
    }
    inputs_.push_back(std::move(input));
  }
  return has_splits ? read_splits() : Failure{};
}

Call::Failure Call::read_splits() {
  TF_Tensor* raw = nullptr;
  api().GetInput(context_, 1, &raw, status_.get());
  if (!status_.ok()) return {kTfUnknown, status_.message()};
  splits_.reset(raw);
  if (api().NumDims(raw) != 1) return {kTfInvalidArgument, "the splits must have one dimension"};
  return {};
}

std::vector<hvd_request> Call::describe() {
  int64_t iteration = api().GetIterId(context_);
  auto count = static_cast<size_t>(count_);
  for (size_t i = 0; i < count; i++) names_.push_back(node_.wire_name(i, count, iteration));
  std::vector<hvd_request> requests;
  for (size_t i = 0; i < count; i++) {
    hvd_tensor input{.struct_size = sizeof(hvd_tensor),
                     .dtype = types_[i]->hvd,
                     .device = HVD_HOST_DEVICE,
                     .ndim = static_cast<int32_t>(shapes_[i].size()),
                     .shape = shapes_[i].data(),
                     .data = api().TensorData(inputs_[i].get())};
    hvd_tensor output = input;
    output.data = outputs_[i] ? api().TensorData(outputs_[i].get()) : nullptr;
    hvd_request request{.struct_size = sizeof(hvd_request),
                        .kind = node_.verb.kind,
                        .reduce_op = node_.reduce_op,
                        .process_set = node_.process_set,
                        .root_rank = node_.root_rank,
                        .name = names_[i].c_str(),
                        .prescale_factor = node_.prescale_factor,
                        .postscale_factor = node_.postscale_factor,
                        .input = input,
                        .output = output};
    if (splits_ && api().Dim(splits_.get(), 0) > 0) {
      request.splits = static_cast<const int32_t*>(api().TensorData(splits_.get()));
      request.splits_count = static_cast<int32_t>(api().Dim(splits_.get(), 0));
    }
    requests.push_back(request);
  }
  return requests;
}

void Call::start(std::unique_ptr<Call> call) {
  std::vector<hvd_request> requests;
  if (call->node_.verb.kind == HVD_JOIN) {
    hvd_tensor none{.struct_size = sizeof(hvd_tensor), .device = HVD_HOST_DEVICE};
    requests.push_back({.struct_size = sizeof(hvd_request),
                        .kind = HVD_JOIN,
                        .root_rank = -1,
                        .name = "join.noname",
                        .prescale_factor = 1,
                        .postscale_factor = 1,
                        .input = none,
                        .output = none});
  } else {
    if (Failure failure = call->take_inputs(); failure.code != 0) return finish(std::move(call), failure);
    requests = call->describe();
  }
  if (requests.empty()) return finish(std::move(call), {});
  hvd_submit_options options{.struct_size = sizeof(hvd_submit_options),
                             .wait_follows = 0,
                             .allocate = &on_allocate,
                             .allocate_context = call.get(),
                             .done = &on_done,
                             .done_context = call.get()};
  Call* raw = call.release();  // from the submission on, on_done owns it, perhaps before hvd_submit has returned
  hvd_handle handle = 0;
  hvd_code code = hvd_submit(requests.data(), static_cast<int32_t>(requests.size()), &options, &handle);
  if (code != HVD_OK) finish(std::unique_ptr<Call>(raw), {tf_code(code), hvd_last_error()});
}

TF_Tensor* Call::allocate(int index, int tf_type, size_t item_size, const int64_t* shape, int32_t ndim) {
  TF_Tensor* tensor = api().AllocateOutput(context_, index, tf_type, shape, ndim,
                                           count_elements(shape, ndim) * item_size, status_.get());
  return status_.ok() ? tensor : nullptr;
}

void* Call::on_allocate(void* context, int32_t index, int32_t, int32_t ndim, const int64_t* shape) try {
  auto* call = static_cast<Call*>(context);
  auto place = static_cast<size_t>(index);
  const TypePair& type = *call->types_[place];
  call->outputs_[place].reset(call->allocate(index, type.tf, type.size, shape, ndim));
  if (!call->outputs_[place]) return nullptr;
  static std::byte nothing[64];  // an empty tensor has no memory, but NULL would mean that allocation failed
  void* data = api().TensorData(call->outputs_[place].get());
  return data != nullptr ? data : nothing;
} catch (const std::exception&) {
  return nullptr;
}

Call::Failure Call::give_results(hvd_handle handle) {
  if (node_.verb.kind == HVD_JOIN) {
    Tensor last(allocate(0, kTfInt32, sizeof(int32_t), nullptr, 0));
    if (!last) return {kTfUnknown, status_.message()};
    *static_cast<int32_t*>(api().TensorData(last.get())) = hvd_result_value(handle);
    return {};
  }
  if (node_.verb.kind == HVD_ALLTOALL) {
    int64_t ranks = hvd_received_splits(handle, 0, nullptr, 0);
    if (ranks < 0) return {kTfUnknown, hvd_last_error()};
    Tensor received(allocate(1, kTfInt32, sizeof(int32_t), &ranks, 1));
    if (!received) return {kTfUnknown, status_.message()};
    hvd_received_splits(handle, 0, static_cast<int32_t*>(api().TensorData(received.get())),
                        static_cast<int32_t>(ranks));
  }
  for (size_t i = 0; i < outputs_.size(); i++) {
    if (outputs_[i]) continue;  // allocated earlier
    hvd_tensor result{.struct_size = sizeof(hvd_tensor)};
    if (hvd_result(handle, static_cast<int32_t>(i), &result) != HVD_OK) return {kTfUnknown, hvd_last_error()};
    outputs_[i].reset(allocate(static_cast<int>(i), types_[i]->tf, types_[i]->size, result.shape, result.ndim));
    if (!outputs_[i]) return {kTfUnknown, status_.message()};
  }
  return {};
}

Call::Failure Call::complete(hvd_handle handle, hvd_code code) {
  if (code == HVD_OK) return give_results(handle);
  hvd_wait(handle, 0);  // it is done: this only fetches the text
  std::string text = hvd_last_error();
  if (!status_.ok()) text += ": " + status_.message();
  return {tf_code(code), text};
}

void Call::on_done(void* context, hvd_handle handle, hvd_code code) {
  std::unique_ptr<Call> call(static_cast<Call*>(context));
  Failure failure;
  try {
    failure = call->complete(handle, code);
  } catch (const std::exception& problem) {
    failure = {kTfUnknown, problem.what()};
  }
  hvd_release(handle);
  finish(std::move(call), failure);
}

void Call::finish(std::unique_ptr<Call> call, const Failure& failure) {
  if (failure.code != 0) fail(call->context_, failure.code, call->node_.verb.op, failure.text);
  Finish finish = std::move(call->finish_);
  call.reset();
  finish();
}

}  // namespace

int tf_code(hvd_code code) {
  switch (code) {
    case HVD_INVALID_ARGUMENT: return kTfInvalidArgument;
    case HVD_PRECONDITION:
    case HVD_NOT_INITIALIZED: return kTfFailedPrecondition;
    case HVD_ABORTED: return kTfAborted;
    case HVD_OK:
    case HVD_UNKNOWN:
    case HVD_PEER_LOST:
    case HVD_REMOVED:
    case HVD_TIMED_OUT: return kTfUnknown;  // UNAVAILABLE would fit better, but tf.function turns it into INTERNAL
  }
  return kTfUnknown;
}

void fail(TF_OpKernelContext* context, int code, const char* op, const std::string& text) {
  TfStatus status(code, std::string(op) + ": " + text);
  api().OpKernelContext_Failure(context, status.get());
}

void run(const Node& node, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) try {
  std::optional<Finish> finish = copy_callback(done);
  if (!finish) {
    fail(context, kTfUnknown, node.verb.op,
         "this TensorFlow's kernels cannot finish from another thread; set HOROVOD_TENSORFLOW_FALLBACK=1");
    api().RunAsyncOpKernelDoneCallback(done);
    return;
  }
  Call::start(std::make_unique<Call>(node, context, *std::move(finish)));
} catch (const std::exception& problem) {  // out of memory, before submission
  fail(context, kTfUnknown, node.verb.op, problem.what());
  api().RunAsyncOpKernelDoneCallback(done);
}

}  // namespace hvd::tensorflow
