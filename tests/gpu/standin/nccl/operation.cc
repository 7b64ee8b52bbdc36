#include "nccl/operation.h"

#include <cstring>
#include <deque>

#include "core/faults.h"
#include "core/memory.h"
#include "core/settings.h"
#include "nccl/exchange.h"

namespace standin::nccl {
namespace {

constexpr size_t kChunk = size_t{1} << 18;  // bytes per rank that a reduction has in flight

constexpr const char* kKinds[] = {"AllReduce", "Reduce", "Broadcast", "ReduceScatter",
                                  "AllGather", "Send",   "Recv",      "Split"};
constexpr const char* kTypeNames[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                      "uint64", "float16", "float32", "float64", "bfloat16"};
constexpr const char* kOpNames[] = {"sum", "prod", "max", "min", "avg"};

// Travels before the data of every call, and is compared with the other side's.
struct Header {
  uint64_t sequence;
  uint64_t count;
  int kind, type, op, root;
  int64_t registered;  // offset of the input in registered memory, or -1
  unsigned char scale[8];
};

bool reduces(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }

int64_t registered_offset(const Communicator& communicator, uint64_t address, size_t bytes) {
  const std::lock_guard lock(core().mutex);
  for (const auto& [handle, memory] : communicator.registered)
    if (address >= memory.address && address + bytes <= memory.address + memory.bytes)
      return static_cast<int64_t>(address - memory.address);
  return -1;
}

Header header_of(const Call& call, uint64_t sequence, const Communicator& communicator) {
  Header header{.sequence = sequence,
                .count = call.count,
                .kind = static_cast<int>(call.kind),
                .type = call.type,
                .op = reduces(call.kind) ? (call.reduction.scaled ? int{kBuiltinOps} : call.reduction.op) : 0,
                .root = call.collective() ? call.root : 0,
                .registered = registered_offset(communicator, call.send, bytes_read(call, communicator)),
                .scale = {}};
  std::memcpy(header.scale, call.reduction.scale, sizeof header.scale);
  return header;
}

std::string to_text(const Header& header) {
  Call call{.kind = static_cast<Kind>(header.kind),
            .send = 0,
            .receive = 0,
            .count = header.count,
            .type = header.type,
            .reduction = {},
            .root = header.root};
  call.reduction.op = header.op;
  std::string text = to_text(call) + ", number " + std::to_string(header.sequence);
  return header.registered >= 0 ? text + ", registered memory at offset " + std::to_string(header.registered) : text;
}

void compare(const Communicator& communicator, const Header& mine, int peer, const Header& theirs, const Site& site) {
  const bool same = mine.kind == theirs.kind && mine.sequence == theirs.sequence && mine.count == theirs.count &&
                    mine.type == theirs.type && mine.op == theirs.op && mine.root == theirs.root;
  const bool memory = mine.registered == theirs.registered || !reduces(static_cast<Kind>(mine.kind));
  if (same && memory) return;
  violation(std::string(same ? "registered memory on some ranks only, or at other offsets"
                             : "ranks call different operations") +
            ", " + communicator.name() + "\n  " + communicator.members[communicator.rank] + ": " + to_text(mine) +
            "\n  " + communicator.members[peer] + ": " + to_text(theirs) + "\n  here: " + to_text(site));
}

class Runner {
 public:
  Runner(Communicator& communicator, TurnPointer turn, SitePointer site)
      : communicator_(communicator), turn_(std::move(turn)), site_(std::move(site)) {}

  bool run(const std::vector<Call>& calls) {
    for (const Call& call : calls)
      if (call.collective() && !run_collective(call)) return false;
    return run_pairs(calls);
  }

 private:
  int ranks() const { return communicator_.ranks; }
  int rank() const { return communicator_.rank; }

  bool run(Exchange& exchange) {
    return exchange.run([this](const std::vector<int>& awaits) { send_probes(turn_, awaits); });
  }

  bool run_collective(const Call& call) {
    mine_ = header_of(call, ++communicator_.collectives, communicator_);
    theirs_.assign(static_cast<size_t>(ranks()), mine_);
    Exchange exchange(communicator_);
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank()) continue;
      exchange.send(peer, &mine_, sizeof mine_);
      exchange.receive(peer, &theirs_[peer], sizeof(Header),
                       [this, peer] { compare(communicator_, mine_, peer, theirs_[peer], *site_); });
    }
    if (!run(exchange)) return false;
    switch (call.kind) {
      case Kind::all_reduce:
        return reduce_to(
            call, [](int) { return true; }, 0);
      case Kind::reduce:
        return reduce_to(
            call, [&](int to) { return to == call.root; }, 0);
      case Kind::reduce_scatter:
        return reduce_to(
            call, [](int) { return true; }, call.count * size_of(call.type));
      case Kind::broadcast: return broadcast(call);
      case Kind::all_gather: return all_gather(call);
      case Kind::send:
      case Kind::receive:
      case Kind::split: return true;
    }
    return true;
  }

  // Every rank for which `reaches` holds gets the reduction of the parts at `stride` times its rank.
  template <typename Reaches>
  bool reduce_to(const Call& call, Reaches reaches, size_t stride) {
    const size_t size = size_of(call.type), total = call.count * size;
    std::vector<Reduction> scales(static_cast<size_t>(ranks()), call.reduction);
    for (int peer = 0; peer < ranks(); ++peer) std::memcpy(scales[peer].scale, theirs_[peer].scale, 8);
    std::vector<std::vector<char>> arrived(static_cast<size_t>(ranks()));
    for (auto& buffer : arrived) buffer.resize(std::min(total, kChunk));
    const char* input = bytes_at(call.send);
    for (size_t begin = 0; begin < total; begin += kChunk) {
      const size_t bytes = std::min(kChunk, total - begin);
      // Copies of all parts first: with the output in place of the input, it may overwrite what is being sent.
      std::vector<std::vector<char>> parts(static_cast<size_t>(ranks()));
      Exchange exchange(communicator_);
      for (int peer = 0; peer < ranks(); ++peer) {
        if (!reaches(peer)) continue;
        const char* part = input + static_cast<size_t>(peer) * stride + begin;
        parts[peer].assign(part, part + bytes);
        if (peer != rank()) exchange.send(peer, parts[peer].data(), bytes);
      }
      if (reaches(rank())) {
        for (int peer = 0; peer < ranks(); ++peer)
          if (peer != rank()) exchange.receive(peer, arrived[peer].data(), bytes);
      }
      if (!run(exchange)) return false;
      if (!reaches(rank())) continue;
      std::vector<const char*> inputs(static_cast<size_t>(ranks()));
      for (int peer = 0; peer < ranks(); ++peer)
        inputs[peer] = peer == rank() ? parts[peer].data() : arrived[peer].data();
      reduce(call.type, call.reduction, inputs, scales, bytes / size, bytes_at(call.receive) + begin);
    }
    return true;
  }

  bool broadcast(const Call& call) {
    const size_t bytes = call.count * size_of(call.type);
    Exchange exchange(communicator_);
    if (rank() != call.root) {
      exchange.receive(call.root, bytes_at(call.receive), bytes);
      return run(exchange);
    }
    for (int peer = 0; peer < ranks(); ++peer)
      if (peer != rank()) exchange.send(peer, bytes_at(call.send), bytes);
    if (!run(exchange)) return false;
    std::memmove(bytes_at(call.receive), bytes_at(call.send), bytes);
    return true;
  }

  bool all_gather(const Call& call) {
    const size_t bytes = call.count * size_of(call.type);
    char* output = bytes_at(call.receive);
    std::memmove(output + static_cast<size_t>(rank()) * bytes, bytes_at(call.send), bytes);
    Exchange exchange(communicator_);
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank()) continue;
      exchange.send(peer, output + static_cast<size_t>(rank()) * bytes, bytes);
      exchange.receive(peer, output + static_cast<size_t>(peer) * bytes, bytes);
    }
    return run(exchange);
  }

  // All sends and receives of the group at the same time; those of one pair match in order.
  bool run_pairs(const std::vector<Call>& calls) {
    std::deque<Header> headers;  // stay in place
    std::vector<const Call*> to_self, from_self;
    Exchange exchange(communicator_);
    for (const Call& call : calls) {
      if (call.collective()) continue;
      const size_t bytes = call.count * size_of(call.type);
      Header common = header_of(call, 0, communicator_);
      common.kind = static_cast<int>(Kind::send);
      common.registered = -1;
      if (call.root == rank()) {
        (call.kind == Kind::send ? to_self : from_self).push_back(&call);
      } else if (call.kind == Kind::send) {
        exchange.send(call.root, &headers.emplace_back(common), sizeof(Header));
        exchange.send(call.root, bytes_at(call.send), bytes);
      } else {
        Header* theirs = &headers.emplace_back();
        exchange.receive(call.root, theirs, sizeof(Header),
                         [=, this, peer = call.root] { compare(communicator_, common, peer, *theirs, *site_); });
        exchange.receive(call.root, bytes_at(call.receive), bytes);
      }
    }
    if (to_self.size() != from_self.size())
      violation("sends to the own rank without as many receives: " + to_text(*site_));
    for (size_t i = 0; i < std::min(to_self.size(), from_self.size()); ++i)
      std::memmove(bytes_at(from_self[i]->receive), bytes_at(to_self[i]->send),
                   to_self[i]->count * size_of(to_self[i]->type));
    return run(exchange);
  }

  Communicator& communicator_;
  TurnPointer turn_;
  SitePointer site_;
  Header mine_{};
  std::vector<Header> theirs_;
};

bool note_all(const Communicator& communicator, const std::vector<Call>& calls, const SitePointer& site) {
  const std::lock_guard lock(core().mutex);
  for (const Call& call : calls)
    if (!note_access(site, call.send, bytes_read(call, communicator), false) ||
        !note_access(site, call.receive, bytes_written(call, communicator), true))
      return false;
  return true;
}

// What a kernel does that never gets its data: it runs until the abort.
void stay_until_abort(Communicator& communicator) {
  std::unique_lock lock(core().mutex);
  core().changed.wait(lock, [&] { return communicator.aborted.load(); });
}

// False if the launch must not go on.
bool carry_out_fault(Communicator& communicator, const char* at) {
  const auto fault = fault_at(at);
  if (!fault || (fault->fault != Fault::async && fault->fault != Fault::never && fault->fault != Fault::code))
    return true;
  if (fault->fault == Fault::code) {
    set_sticky_error(fault->value);
    return false;
  }
  if (fault->fault == Fault::async) {
    set_last_error("stand-in: fault " + std::string(at));
    communicator.error = fault->value;
  }
  stay_until_abort(communicator);
  return false;
}

}  // namespace

std::string to_text(const Call& call) {
  std::string text = std::string(kKinds[static_cast<int>(call.kind)]) + " of " + std::to_string(call.count) + " " +
                     (call.type >= 0 && call.type < kTypes ? kTypeNames[call.type] : "?");
  if (reduces(call.kind))
    text += std::string(", op ") +
            (call.reduction.scaled || call.reduction.op >= kBuiltinOps ? "scaled sum" : kOpNames[call.reduction.op]);
  if (call.kind == Kind::reduce || call.kind == Kind::broadcast) text += ", root " + std::to_string(call.root);
  return text;
}

size_t bytes_read(const Call& call, const Communicator& communicator) {
  const size_t bytes = call.count * size_of(call.type);
  if (call.kind == Kind::receive || (call.kind == Kind::broadcast && call.root != communicator.rank)) return 0;
  return call.kind == Kind::reduce_scatter ? bytes * static_cast<size_t>(communicator.ranks) : bytes;
}

size_t bytes_written(const Call& call, const Communicator& communicator) {
  const size_t bytes = call.count * size_of(call.type);
  if (call.kind == Kind::send || (call.kind == Kind::reduce && call.root != communicator.rank)) return 0;
  return call.kind == Kind::all_gather ? bytes * static_cast<size_t>(communicator.ranks) : bytes;
}

void run_launch(Communicator& communicator, const TurnPointer& turn, const std::vector<Call>& calls,
                const SitePointer& site) {
  bool mine = false;
  {
    std::unique_lock lock(core().mutex);
    mine = wait_for_turn(turn, lock);
  }
  if (sticky_error() != 0) communicator.error = kCudaError;
  if (mine && sticky_error() == 0 && carry_out_fault(communicator, "nccl.kernel") &&
      note_all(communicator, calls, site) && Runner(communicator, turn, site).run(calls))
    carry_out_fault(communicator, "nccl.kernel.end");
  const std::lock_guard lock(core().mutex);
  end_turn(turn);
  --communicator.pending;
  core().changed.notify_all();
}

bool gather_blocks(Communicator& communicator, std::vector<std::string>& blocks, const std::vector<bool>& left_out) {
  Exchange exchange(communicator);
  const std::string& mine = blocks[static_cast<size_t>(communicator.rank)];
  for (int peer = 0; peer < communicator.ranks; ++peer) {
    if (peer == communicator.rank || left_out[peer]) continue;
    blocks[peer].resize(mine.size());
    exchange.send(peer, mine.data(), mine.size());
    exchange.receive(peer, blocks[peer].data(), mine.size());
  }
  return exchange.run();
}

}  // namespace standin::nccl
