// Which cores a worker may use: --bind-to core gives every worker its own cores, numa those of one memory node.
// Thread rule: plain value, made once on the host of the workers.
#pragma once

#include <string_view>
#include <vector>

namespace hvd::launcher {

class Binding {
 public:
  Binding() = default;
  explicit Binding(std::string_view kind);  // "", "none": no binding

  // Empty: any. If there are more workers than cores, or nodes, workers share them.
  std::vector<int> cpus_of(int local_rank, int local_size) const;

 private:
  std::vector<std::vector<int>> units_;  // cores, or the cores of each node, that this process may use
};

int core_count();  // usable by this process

// "0-3,8": the kernel's format for a list of cores.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace hvd::launcher
