// What the doctor has found out, before it is evaluated. A probe on every host collects Facts (probe.h) and sends
// them to the launcher as JSON; the launcher adds what it knows itself. Thread rule: plain values and pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::launcher {

struct Installation {
  std::string horovodrun;                // version of the program that runs the probe
  std::string python, python_version;    // its path; empty: none was found, or it gave no answer
  std::string package;                   // version of the Python package horovod; empty: that Python has none
  std::string library, library_version;  // path of libhorovod.so; version empty: it cannot be used,
  std::string library_error;             // for this reason
};

struct Resources {
  std::string kernel, machine;  // "6.1.0-13-amd64", "x86_64"
  int32_t cores = 0;            // that a process may run on
  std::optional<double> quota;  // cores' worth of time that the control group allows
  uint64_t memory = 0;          // bytes that can be had without swapping, within the control group
  std::optional<uint64_t> open_files, locked_memory, processes;  // soft limits; nullopt: none
  bool has_rdma = false;                                         // InfiniBand or RoCE: then locked memory matters
  std::optional<uint64_t> shm;                                   // bytes of /dev/shm; nullopt: there is none
};

// An address that a host publishes for its peers.
struct Address {
  std::string ip;  // as text
  uint16_t port = 0;
  std::string interface;
  bool is_virtual = false;  // docker0 and the like
};

// One host tried one address of another.
struct Attempt {
  std::string host;  // whose address it is
  Address address;
  std::optional<double> time;  // seconds until it was connected and authenticated
  std::string error;           // why not
  bool is_own = false;         // the trying host has this address itself, so it cannot mean the other one
};

// Cannot be expected to work: a container bridge, link-local, or the caller's own address.
bool is_doubtful(const Attempt& attempt);

// How far a host's clock is ahead of the first host's.
struct ClockOffset {
  double seconds = 0, uncertainty = 0;
};

struct Trial {
  double seconds = 0;  // of one allreduce of 1 MiB
  std::string error;   // why there was none
  bool was_skipped = false;
};

struct Facts {
  Installation installation;
  Resources resources;
  std::string launcher_error;  // why it cannot talk to the launcher's store
  std::vector<Address> addresses;
  std::vector<Attempt> attempts;
  std::optional<ClockOffset> clock;
  std::optional<Trial> allreduce;
};

// A host as the launcher sees it. Exactly one of the errors is set, or facts are there; a probe that fails late has
// both.
struct HostExam {
  std::string name;
  int slots = 1;
  std::string contact_error;  // it cannot be reached
  std::string command;        // to try by hand
  std::string probe_error;    // it was reached, but its probe did not do its work
  std::optional<Facts> facts;
};

using Json = nlohmann::ordered_json;

Json to_json(const Address& address);
Json to_json(const Facts& facts);
Result<Address> address_from(const Json& json);
Result<Facts> facts_from(std::string_view text);  // of another process: checked

}  // namespace hvd::launcher
