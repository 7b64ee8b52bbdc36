// Kernels from PTX text: the instructions that compilers emit for kernels which copy, convert and scale. No shared
// memory, no barriers, no calls. The threads of a launch run one after another.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace standin::ptx {

struct Type {
  char kind = 'b';  // b, u, s, f, or p for predicates
  int bits = 32;
};

struct Operand {
  enum Kind { none, reg, immediate, parameter, special, vector, memory, label } kind = none;
  int index = -1;              // of the register (-1: none), special register or label
  uint64_t value = 0;          // immediate, or offset
  bool in_parameters = false;  // a memory operand whose base is a parameter
  bool negated = false;        // !%p
  std::vector<Operand> parts;
};

struct Instruction {
  std::string text;  // as written, for reports
  std::vector<std::string> opcode;
  int guard = -1;  // register of the predicate, or -1
  bool guard_negated = false;
  std::vector<Operand> operands;
  Type type;     // the last type of the opcode
  int run = -1;  // index of the function that executes it
};

struct Kernel {
  std::string name;
  size_t parameter_bytes = 0;
  std::vector<std::pair<size_t, size_t>> parameters;  // offset and size of each
  std::map<std::string, size_t> parameter_offsets;
  int registers = 0;
  std::vector<Instruction> code;
  std::vector<size_t> labels;  // label index -> instruction
};

struct Module {
  int version = 0;  // 63 for .version 6.3
  std::map<std::string, std::shared_ptr<Kernel>> kernels;
};

// Returns null with a reason when the text is not understood.
std::shared_ptr<Module> parse(std::string_view text, std::string* reason);

struct Shape {
  std::array<unsigned, 3> grid, block;
};
// Runs every thread, and checks all accesses as those of `site`. Returns 0 or a CUDA error after a report.
int run(const Kernel& kernel, const Shape& shape, const std::vector<char>& parameters, const SitePointer& site);

// The index of the function for this opcode, or -1 if there is none.
int find_instruction(const std::vector<std::string>& opcode);

}  // namespace standin::ptx
