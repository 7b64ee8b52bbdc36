// Which cores a worker may run on: --bind-to core gives every worker cores of its own, numa those of one memory node.
// Thread rule: plain value, made once on the host of the workers.
#pragma once

#include <string_view>
#include <vector>

namespace hvd::launcher {

class Binding {
 public:
  Binding() = default;
  explicit Binding(std::string_view kind);  // "", "none": no binding

  // Empty: any. With more workers than cores, or nodes, they take turns.
  std::vector<int> cpus_of(int local_rank, int local_size) const;

 private:
  std::vector<std::vector<int>> units_;  // cores, or the cores of each node, as far as this process may use them
};

int core_count();  // by this process

// "0-3,8": the kernel's way to write a list of cores.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace hvd::launcher
