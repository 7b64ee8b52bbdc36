#include "core/settings.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace standin {
namespace {

[[noreturn]] void refuse(const char* name, const char* value, const char* expected) {
  std::fprintf(stderr, "stand-in: %s=%s is not %s\n", name, value, expected);
  std::_Exit(kViolationExit);
}

uint64_t number(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return fallback;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*end != 0) refuse(name, text, "a number");
  return value;
}

// The value is one of two words; true for the second.
bool choice(const char* name, std::string_view first, std::string_view second, bool fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return fallback;
  if (text == first) return false;
  if (text != second) refuse(name, text, (std::string(first) + " or " + std::string(second)).c_str());
  return true;
}

Schedule schedule_of(const char* text) {
  const std::string_view name = text == nullptr ? "" : text;
  if (name.empty() || name == "eager") return Schedule::eager;
  if (name == "lazy") return Schedule::lazy;
  if (name != "random") refuse("HVD_STANDIN_SCHEDULE", text, "eager, lazy or random");
  return Schedule::random;
}

int rank_of_process() {
  for (const char* name : {"HVD_STANDIN_RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return -1;
}

Settings read() {
  Settings s;
  s.gpus = static_cast<int>(number("HVD_STANDIN_GPUS", 2));
  s.memory = number("HVD_STANDIN_MEMORY", s.memory);
  s.schedule = schedule_of(std::getenv("HVD_STANDIN_SCHEDULE"));
  s.seed = number("HVD_STANDIN_SEED", 1);
  s.abort_at_once = !choice("HVD_STANDIN_VIOLATION", "abort", "exit", false);
  s.leaks_fail = !choice("HVD_STANDIN_LEAKS", "fail", "print", false);
  s.count_only = choice("HVD_STANDIN_MODE", "check", "count", false);
  s.threads_apart = choice("HVD_STANDIN_HOST_THREADS", "together", "apart", false);
  s.peer_loss_shows = !choice("HVD_STANDIN_PEER_LOSS", "error", "hang", false);
  s.unrecorded_waits = choice("HVD_STANDIN_UNRECORDED", "refuse", "allow", false);
  s.driver_version = static_cast<int>(number("HVD_STANDIN_DRIVER", 12040));
  s.nccl_version = static_cast<int>(number("HVD_STANDIN_NCCL_VERSION", 0));
  s.rank = rank_of_process();
  if (const char* text = std::getenv("HVD_STANDIN_FAULTS")) s.faults = text;
  if (const char* text = std::getenv("HVD_STANDIN_FAULT_FOLDER")) s.fault_folder = text;
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings& value = *new Settings(read());  // used by threads that run until the end
  return value;
}

std::string schedule_name() {
  switch (settings().schedule) {
    case Schedule::eager: return "eager";
    case Schedule::lazy: return "lazy";
    case Schedule::random: return "random(" + std::to_string(settings().seed) + ")";
  }
  return "";
}

}  // namespace standin
