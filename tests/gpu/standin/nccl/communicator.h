// A communicator of this process: its links, its state, and the rules about who may call what. The handle is the
// address of an object that is never freed, so that a use after its end is recognised.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/context.h"
#include "nccl/bootstrap.h"
#include "nccl/reduce.h"

namespace standin::nccl {

struct Registered {
  uint64_t address;
  size_t bytes;
};

struct Communicator {
  uint64_t number = 0;  // counts the communicators of the process
  uint64_t key = 0;     // the same on all its ranks, and in no other communicator
  int rank = 0, ranks = 1;
  Context* context = nullptr;
  bool blocking = true;
  SitePointer made;

  std::vector<Link> links;           // by rank
  std::vector<std::string> members;  // by rank: names for reports
  std::thread listener;              // reads the control links
  std::mutex sending;                // held while a notice is written to one of them

  // Guarded by core().mutex.
  bool ready = false;  // init has ended well
  bool ended = false;  // destroyed or aborted
  bool finalized = false;
  SitePointer busy;  // a call that returned "in progress", until ncclCommGetAsyncError has said how it ended
  std::vector<Stream*> busy_streams;  // that the call launches on
  int workers = 0;                    // threads inside that make progress on it
  uint64_t pending = 0;               // launches that have not finished
  std::vector<bool> said_bye, gone;   // by rank
  std::map<int, Reduction> custom_ops;
  std::map<void*, Registered> registered;

  std::atomic<bool> aborted{false};
  std::atomic<int> error{0};             // asynchronous
  std::atomic<uint64_t> collectives{0};  // started on streams: their sequence number

  Stop stop() {
    return [this] { return aborted.load(); };
  }
  std::string name() const;
};

Communicator* add_communicator(Context* context, const SitePointer& made);
// Null if the handle is none; ended ones are found, too. core().mutex is held, as for all below.
Communicator* find_communicator(const void* handle);
std::vector<Communicator*> live_communicators();
std::string list_communicators();  // without the mutex

// Makes the links and begins to listen to the peers. Blocks, without the mutex. Returns a result.
int connect(Communicator& communicator, const UniqueId& id, int version);

// Says bye to all peers and waits until all have said it, or are gone. Blocks, without the mutex.
void say_bye(Communicator& communicator);
// Closes everything; no worker and no launch of it is left.
void end(Communicator& communicator);

// Sends a notice to a peer, on the control link; the device queue uses it to find cycles.
void send_notice(Communicator& communicator, int peer, const std::string& text);

// NCCL's last error text, of the process.
void set_last_error(const std::string& text);
const char* last_error();

}  // namespace standin::nccl
