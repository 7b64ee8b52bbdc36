#include "adapters/tensorflow/ops.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/tensorflow/call.h"
#include "adapters/tensorflow/shapes.h"
#include "adapters/tensorflow/tf_objects.h"
#include "adapters/tensorflow/verb.h"
#include "horovod/horovod.h"

namespace hvd::tensorflow {
namespace {

constexpr const char* kReducible = "T: {uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double}";
constexpr const char* kMovable =
    "T: {uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, bool, complex64, complex128}";
constexpr const char* kCount = "num_tensors: int >= 1";

struct Definition {
  const char* op;
  std::vector<const char*> inputs, outputs, attributes;
  InferShapes shapes;
};

Definition definition_of(const Verb& verb) {
  bool grouped = verb.members != Members::one;
  Definition definition{.op = verb.op, .shapes = same_shapes};
  if (verb.kind == HVD_JOIN) {
    definition.outputs = {"last_rank: int32"};
    definition.shapes = scalar;
    return definition;
  }
  definition.inputs = {grouped ? "tensors: num_tensors * T" : "tensor: T"};
  definition.outputs = {grouped ? "outputs: num_tensors * T" : "output: T"};
  // TensorFlow names eager operations after their type; tensor_name is then the user's name.
  definition.attributes = {"ignore_name_scope: bool = false", "process_set_id: int = 0", "tensor_name: string = ''"};
  std::vector<const char*>& attributes = definition.attributes;
  if (verb.kind == HVD_ALLREDUCE || verb.kind == HVD_REDUCESCATTER) {
    attributes.insert(attributes.end(),
                      {kReducible, "reduce_op: int", "prescale_factor: float = 1.0", "postscale_factor: float = 1.0"});
  } else {
    attributes.push_back(kMovable);
  }
  if (grouped) attributes.push_back(kCount);
  if (verb.kind == HVD_BROADCAST) attributes.push_back("root_rank: int");
  if (verb.members == Members::named_group) attributes.push_back("variable_names: list(string)");
  if (verb.kind == HVD_ALLGATHER || verb.kind == HVD_REDUCESCATTER) definition.shapes = unknown_rows;
  if (verb.kind == HVD_ALLTOALL) {
    definition.inputs.push_back("splits: int32");
    definition.outputs.push_back("received_splits: int32");
    definition.shapes = unknown_rows_and_splits;
  }
  return definition;
}

void check(const TfStatus& status, const std::string& what, std::string& problem) {
  if (!status.ok() && problem.empty()) problem = what + ": " + status.message();
}

// Stateful, so that TensorFlow neither folds constants nor merges equal operations: each one communicates with other
// ranks.
void define(const Definition& definition, std::string& problem) {
  TF_OpDefinitionBuilder* builder = api().NewOpDefinitionBuilder(definition.op);
  for (const char* each : definition.attributes) api().OpDefinitionBuilderAddAttr(builder, each);
  for (const char* each : definition.inputs) api().OpDefinitionBuilderAddInput(builder, each);
  for (const char* each : definition.outputs) api().OpDefinitionBuilderAddOutput(builder, each);
  api().OpDefinitionBuilderSetIsStateful(builder, true);
  api().OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.shapes);
  TfStatus status;
  api().RegisterOpDefinition(builder, status.get());
  check(status, definition.op, problem);
}

std::string argument_name(const char* declaration) {
  std::string text(declaration);
  return text.substr(0, text.find(':'));
}

// On a GPU all arguments are in host memory: TensorFlow copies them.
void add_kernel(const Definition& definition, const char* device, TF_KernelBuilder* builder, std::string& problem) {
  if (std::string_view(device) != "CPU") {
    for (const auto* list : {&definition.inputs, &definition.outputs}) {
      for (const char* each : *list) api().KernelBuilder_HostMemory(builder, argument_name(each).c_str());
    }
  }
  TfStatus status;
  api().RegisterKernelBuilder((std::string(definition.op) + device).c_str(), builder, status.get());
  check(status, definition.op, problem);
}

constexpr const char* kDevices[] = {"CPU", "GPU"};

template <const Verb& kVerb>
void add_verb(std::string& problem) {
  Definition definition = definition_of(kVerb);
  define(definition, problem);
  for (const char* device : kDevices) {
    TF_KernelBuilder* builder = api().NewAsyncKernelBuilder(
        kVerb.op, device,
        [](TF_OpKernelConstruction* construction) -> void* { return Node::create(kVerb, construction); },
        [](void* node, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
          run(*static_cast<Node*>(node), context, done);
        },
        [](void* node) { delete static_cast<Node*>(node); });
    add_kernel(definition, device, builder, problem);
  }
}

// ---- queries about the world, answered when the graph runs: an elastic world changes under a graph

using Answer = int32_t (*)(int32_t process_set);

struct Question {
  const char* op;
  Answer answer;
  bool of_set;
};

// Upstream's codes: -1 not initialised, -3 no such set.
int32_t included(int32_t process_set) {
  if (hvd_is_initialized() == 0) return -1;
  if (hvd_process_set_size(process_set) < 0) return -3;
  return hvd_process_set_rank(process_set) >= 0 ? 1 : 0;
}

constexpr Question kSize{"HorovodSize", [](int32_t set) { return hvd_process_set_size(set); }, true};
constexpr Question kIncluded{"HorovodProcessSetIncluded", included, true};
constexpr Question kLocalSize{"HorovodLocalSize", [](int32_t) { return hvd_local_size(); }, false};
constexpr Question kRank{"HorovodRank", [](int32_t) { return hvd_rank(); }, false};
constexpr Question kLocalRank{"HorovodLocalRank", [](int32_t) { return hvd_local_rank(); }, false};

template <const Question& kQuestion>
void answer(void* process_set, TF_OpKernelContext* context) {
  int32_t value = kQuestion.answer(*static_cast<int32_t*>(process_set));
  if (value < 0 && kQuestion.answer != included) {
    return fail(context, tf_code(static_cast<hvd_code>(-value)), kQuestion.op, hvd_last_error());
  }
  TfStatus status;
  Tensor output(api().AllocateOutput(context, 0, kTfInt32, nullptr, 0, sizeof(value), status.get()));
  if (!status.ok()) return api().OpKernelContext_Failure(context, status.get());
  *static_cast<int32_t*>(api().TensorData(output.get())) = value;
}

template <const Question& kQuestion>
void* create_question(TF_OpKernelConstruction* construction) {
  int64_t process_set = HVD_WORLD_SET;
  if (kQuestion.of_set) {
    TfStatus status;
    api().OpKernelConstruction_GetAttrInt64(construction, "process_set_id", &process_set, status.get());
    if (!status.ok()) api().OpKernelConstruction_Failure(construction, status.get());
  }
  return new int32_t(static_cast<int32_t>(process_set));
}

template <const Question& kQuestion>
void add_question(std::string& problem) {
  Definition definition{.op = kQuestion.op, .outputs = {"answer: int32"}, .shapes = scalar};
  if (kQuestion.of_set) definition.attributes = {"process_set_id: int = 0"};
  define(definition, problem);
  for (const char* device : kDevices) {
    TF_KernelBuilder* builder =
        api().NewKernelBuilder(kQuestion.op, device, create_question<kQuestion>, answer<kQuestion>,
                               [](void* process_set) { delete static_cast<int32_t*>(process_set); });
    add_kernel(definition, device, builder, problem);
  }
}

// ---- the self-test: an operation that returns its input from a thread that TensorFlow did not create

void echo(void*, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  std::optional<Finish> finish = copy_callback(done);
  if (!finish) {
    fail(context, kTfUnknown, "HorovodSelfTest", "the callback is not a std::function");
    return api().RunAsyncOpKernelDoneCallback(done);
  }
  std::thread([context, finish = *std::move(finish)] {
    TfStatus status;
    TF_Tensor* raw = nullptr;
    api().GetInput(context, 0, &raw, status.get());
    Tensor input(status.ok() ? raw : nullptr);
    Tensor output(api().AllocateOutput(context, 0, kTfInt32, nullptr, 0, sizeof(int32_t), status.get()));
    if (status.ok()) {
      *static_cast<int32_t*>(api().TensorData(output.get())) = *static_cast<int32_t*>(api().TensorData(input.get()));
    } else {
      api().OpKernelContext_Failure(context, status.get());
    }
    input.reset();
    output.reset();
    finish();
  }).detach();  // it ends with the call, and no owner outlives it to join it
}

void add_self_test(std::string& problem) {
  Definition definition{
      .op = "HorovodSelfTest", .inputs = {"value: int32"}, .outputs = {"same: int32"}, .shapes = scalar};
  define(definition, problem);
  TF_KernelBuilder* builder = api().NewAsyncKernelBuilder(
      definition.op, "CPU", [](TF_OpKernelConstruction*) -> void* { return nullptr; }, echo, [](void*) {});
  add_kernel(definition, "CPU", builder, problem);
}

}  // namespace

std::string register_ops() {
  std::string problem;
  add_verb<kAllreduce>(problem);
  add_verb<kGroupedAllreduce>(problem);
  add_verb<kAllgather>(problem);
  add_verb<kGroupedAllgather>(problem);
  add_verb<kBroadcast>(problem);
  add_verb<kBroadcastInplace>(problem);
  add_verb<kBroadcastInplaceResource>(problem);
  add_verb<kAlltoall>(problem);
  add_verb<kReducescatter>(problem);
  add_verb<kGroupedReducescatter>(problem);
  add_verb<kJoin>(problem);
  add_question<kSize>(problem);
  add_question<kIncluded>(problem);
  add_question<kLocalSize>(problem);
  add_question<kRank>(problem);
  add_question<kLocalRank>(problem);
  add_self_test(problem);
  return problem;
}

}  // namespace hvd::tensorflow
