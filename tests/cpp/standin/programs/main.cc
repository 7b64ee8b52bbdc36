// standin_programs NAME: runs one program. standin_programs: lists them as "name ranks caught".
#include <cstdio>
#include <cstring>

#include "program.h"

int main(int count, char** arguments) {
  for (auto* list : {stream_programs, nccl_programs, kernel_programs, collective_programs, random_programs}) {
    for (const Program& program : list()) {
      if (count < 2) std::printf("%s %d %s\n", program.name, program.ranks, program.caught);
      if (count < 2 || std::strcmp(arguments[1], program.name) != 0) continue;
      program.run();
      return 0;
    }
  }
  return count < 2 ? 0 : 2;
}
