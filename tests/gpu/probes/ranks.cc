#include "ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

extern char** environ;

namespace ranks {
namespace {

constexpr int kFirstPipe = 20;  // of rank r: this + r, in rank 0 the end to write

struct Pipe {
  int reads = -1, writes = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    // Above the numbers that the children have them at.
    reads = ::fcntl(ends[0], F_DUPFD_CLOEXEC, 100);
    writes = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 100);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string text = *one;
    if (!variables.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

pid_t start(int rank, std::vector<std::string> command, std::map<std::string, std::string> variables,
            std::vector<Pipe>& pipes, int output) {
  variables["PROGRAM_RANK"] = variables["HVD_STANDIN_RANK"] = std::to_string(rank);
  variables["PROGRAM_RANKS"] = std::to_string(pipes.size());
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  ::posix_spawn_file_actions_adddup2(&actions, output, 2);
  for (size_t peer = 1; peer < pipes.size(); ++peer) {
    const int number = kFirstPipe + static_cast<int>(peer);
    if (rank == 0) ::posix_spawn_file_actions_adddup2(&actions, pipes[peer].writes, number);
    if (rank == static_cast<int>(peer)) ::posix_spawn_file_actions_adddup2(&actions, pipes[peer].reads, number);
  }
  auto all = environment_with(variables);
  pid_t pid = -1;
  if (::posix_spawn(&pid, command[0].c_str(), &actions, nullptr, pointers(command).data(), pointers(all).data()) != 0) {
    std::perror(command[0].c_str());
    std::abort();
  }
  ::posix_spawn_file_actions_destroy(&actions);
  return pid;
}

std::string read_to_end(int end) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(end, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(count));
  ::close(end);
  return text;
}

int variable(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

}  // namespace

bool Outcome::exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

std::vector<Outcome> run(int ranks, const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& variables) {
  std::vector<Pipe> pipes(static_cast<size_t>(ranks)), outputs(static_cast<size_t>(ranks));
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start(rank, command, variables, pipes, outputs[static_cast<size_t>(rank)].writes));
  }
  for (Pipe& pipe : pipes) {
    pipe.close_end(pipe.reads);
    pipe.close_end(pipe.writes);
  }
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> readers;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    outputs[i].close_end(outputs[i].writes);
    readers.emplace_back([&, i] {
      outcomes[i].output = read_to_end(outputs[i].reads);
      siginfo_t ended{};
      ::waitid(P_PID, static_cast<id_t>(pids[i]), &ended,
               WEXITED | WNOWAIT);  // its id stays taken
      if (ended.si_code == CLD_EXITED || ended.si_status != SIGABRT) return;
      for (pid_t other : pids) ::kill(other, SIGKILL);
    });
  }
  for (std::thread& reader : readers) reader.join();
  for (size_t i = 0; i < outcomes.size(); ++i) ::waitpid(pids[i], &outcomes[i].status, 0);
  return outcomes;
}

int rank() { return variable("PROGRAM_RANK", 0); }
int size() { return variable("PROGRAM_RANKS", 1); }

void share(void* bytes, size_t count) {
  if (rank() == 0) {
    for (int peer = 1; peer < size(); ++peer)
      if (::write(kFirstPipe + peer, bytes, count) != static_cast<ssize_t>(count)) std::_Exit(1);
    return;
  }
  for (size_t done = 0; done < count;) {
    const ssize_t one = ::read(kFirstPipe + rank(), static_cast<char*>(bytes) + done, count - done);
    if (one <= 0) std::_Exit(1);
    done += static_cast<size_t>(one);
  }
}

void wait_for_rank_0() {
  char byte = 0;
  if (rank() != 0 && ::read(kFirstPipe + rank(), &byte, 1) < 0) std::_Exit(1);
}

void let_others_go() {
  for (int peer = 1; peer < size(); ++peer) ::close(kFirstPipe + peer);
}

}  // namespace ranks
