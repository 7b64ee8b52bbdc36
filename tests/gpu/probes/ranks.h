// Several processes of one test program. Rank 0 has a pipe to each of the others, for NCCL's ids and for signals; a
// rank finds its place in PROGRAM_RANK and PROGRAM_RANKS.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ranks {

struct Outcome {
  int status = 0;  // of waitpid
  std::string output;
  bool exited_with(int code) const;
};

// Runs `ranks` processes of the command with more variables in the environment, and waits for all. When one
// aborts (a violation), the others are killed: they might wait for it.
std::vector<Outcome> run(int ranks, const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& variables);

// In such a process.
int rank();
int size();
// Rank 0 gives the bytes to all others.
void share(void* bytes, size_t count);
// On ranks other than 0: returns once rank 0 has ended, or has called let_others_go. On rank 0: at once.
void wait_for_rank_0();
void let_others_go();

}  // namespace ranks
