// Small programs, right ones and ones with a planted bug, that the tests of the stand-in run as processes of their own.
#pragma once

#include <string>
#include <vector>

struct Program {
  const char* name;
  int ranks;
  const char* caught;  // words of the report that must come; "" for a correct program
  void (*run)();
};

std::vector<Program> stream_programs();
std::vector<Program> nccl_programs();
std::vector<Program> kernel_programs();
std::vector<Program> collective_programs();
std::vector<Program> random_programs();
