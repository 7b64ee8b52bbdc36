// The doctor's raw results. A probe on every host collects Facts (probe.h) and sends them to the launcher as JSON; the
// launcher adds its own. Thread rule: plain values and pure functions.
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
  std::string python, python_version;    // its path; empty: none was found, or it did not answer
  std::string package;                   // version of the Python package horovod; empty: that Python has none
  std::string library, library_version;  // path of libhorovod.so; version empty: it is unusable,
  std::string library_error;             // for this reason
};

struct Resources {
  std::string kernel, machine;  // "6.1.0-13-amd64", "x86_64"
  int32_t cores = 0;            // that a process may run on
  std::optional<double> quota;  // cores' worth of CPU time that the control group allows
  uint64_t memory = 0;          // bytes available without swapping, within the control group
  std::optional<uint64_t> open_files, locked_memory, processes;  // soft limits; nullopt: none
  bool has_rdma = false;                                         // InfiniBand or RoCE: locked memory matters then
  std::optional<uint64_t> shm;                                   // bytes of /dev/shm; nullopt: it does not exist
};

// An address that a host publishes for its peers.
struct Address {
  std::string ip;  // as text
  uint16_t port = 0;
  std::string interface;
  bool is_virtual = false;  // docker0 and similar
};

// One host's attempt to connect to one address of another.
struct Attempt {
  std::string host;  // the host with this address
  Address address;
  std::optional<double> time;  // seconds until it was connected and authenticated
  std::string error;           // the error otherwise
  bool is_own = false;         // the trying host has this address itself, so it cannot belong to the other one
};

// Unlikely to work: a container bridge, link-local, or the caller's own address.
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
  std::string launcher_error;  // why it cannot connect to the launcher's store
  std::vector<Address> addresses;
  std::vector<Attempt> attempts;
  std::optional<ClockOffset> clock;
  std::optional<Trial> allreduce;
};

// A host from the launcher's point of view. Either one of the errors or the facts are set; both for a probe that fails
// late.
struct HostExam {
  std::string name;
  int slots = 1;
  std::string contact_error;  // it could not be contacted
  std::string command;        // to try by hand
  std::string probe_error;    // it was contacted, but its probe failed
  std::optional<Facts> facts;
};

using Json = nlohmann::ordered_json;

Json to_json(const Address& address);
Json to_json(const Facts& facts);
Result<Address> address_from(const Json& json);
Result<Facts> facts_from(std::string_view text);  // from another process: validated

}  // namespace hvd::launcher
