#include "adapters/tensorflow/verb.h"

#include <memory>

#include "adapters/tensorflow/tf_objects.h"

namespace hvd::tensorflow {
namespace {

constexpr int64_t kParallelIterations = 10;  // TensorFlow's default for tf.while_loop

// Reads a node's attributes; the first failure stays in `status`.
struct Reader {
  TF_OpKernelConstruction* construction;
  TfStatus status;

  int32_t number(const char* name) {
    int64_t value = 0;
    if (status.ok()) api().OpKernelConstruction_GetAttrInt64(construction, name, &value, status.get());
    return static_cast<int32_t>(value);
  }
  double real(const char* name) {
    float value = 1;
    if (status.ok()) api().OpKernelConstruction_GetAttrFloat(construction, name, &value, status.get());
    return value;
  }
  bool flag(const char* name) {
    unsigned char value = 0;
    if (status.ok()) api().OpKernelConstruction_GetAttrBool(construction, name, &value, status.get());
    return value != 0;
  }
  std::string text(const char* name) {
    int32_t count = 0, size = 0;
    if (status.ok()) api().OpKernelConstruction_GetAttrSize(construction, name, &count, &size, status.get());
    if (!status.ok() || size <= 0) return {};
    std::string value(static_cast<size_t>(size), 0);
    api().OpKernelConstruction_GetAttrString(construction, name, value.data(), value.size(), status.get());
    return value;
  }
  std::vector<std::string> texts(const char* name) {
    int32_t count = 0, size = 0;
    if (status.ok()) api().OpKernelConstruction_GetAttrSize(construction, name, &count, &size, status.get());
    if (!status.ok() || count <= 0) return {};
    std::vector<char*> starts(static_cast<size_t>(count));
    std::vector<size_t> sizes(starts.size());
    std::string storage(static_cast<size_t>(size), 0);
    api().OpKernelConstruction_GetAttrStringList(construction, name, starts.data(), sizes.data(), count, storage.data(),
                                                 storage.size(), status.get());
    std::vector<std::string> values;
    for (size_t i = 0; status.ok() && i < starts.size(); i++) values.emplace_back(starts[i], sizes[i]);
    return values;
  }
};

}  // namespace

Node* Node::create(const Verb& verb, TF_OpKernelConstruction* construction) {
  auto node = std::make_unique<Node>();
  node->verb = verb;
  if (verb.kind == HVD_JOIN) return node.release();
  Reader read{construction, {}};
  TF_StringView node_name = api().OpKernelConstruction_GetName(construction);
  node->name = read.text("tensor_name");
  if (node->name.empty()) node->name.assign(node_name.data, node_name.len);
  if (read.flag("ignore_name_scope")) node->name.erase(0, node->name.rfind('/') + 1);
  node->process_set = read.number("process_set_id");
  if (verb.kind == HVD_ALLREDUCE || verb.kind == HVD_REDUCESCATTER) {
    node->reduce_op = read.number("reduce_op");
    node->prescale_factor = read.real("prescale_factor");
    node->postscale_factor = read.real("postscale_factor");
  }
  if (verb.kind == HVD_BROADCAST) node->root_rank = read.number("root_rank");
  if (verb.members == Members::named_group) node->member_names = read.texts("variable_names");
  if (!read.status.ok()) api().OpKernelConstruction_Failure(construction, read.status.get());
  return node.release();
}

std::string Node::wire_name(size_t index, size_t count, int64_t iteration) const {
  std::string wire = name;
  if (int64_t place = iteration % kParallelIterations; place != 0) wire += "#" + std::to_string(place);
  switch (verb.members) {
    case Members::one: break;
    case Members::group: wire += "_" + std::to_string(index + 1) + "of" + std::to_string(count); break;
    case Members::named_group:
      if (index < member_names.size()) wire += "_" + member_names[index];
      break;
  }
  return wire;
}

}  // namespace hvd::tensorflow
