// Writes the fuzzers' first inputs: real conversations between negotiators and a coordinator, and through the nodes of
// a tree, one per file.
//   make_corpus <folder>   fills <folder>/coordinator, negotiator, aggregator, tree_root and pair_root, and those of
//                          make_connection_corpus.cc
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/corpus_file.h"
#include "fuzz/steps.h"
#include "fuzz/tree.h"
#include "negotiation/coordinator.h"
#include "negotiation/negotiator.h"

namespace hvd {
namespace {

Request request_of(Kind kind, std::string name, Shape shape = {4, 2}) {
  Request request;
  request.kind = kind;
  request.name = std::move(name);
  request.shape = std::move(shape);
  return request;
}

// Three ranks; records what the coordinator and a negotiator receive.
class Conversation {
 public:
  Conversation() : root_(3, {}) {
    for (int i = 0; i < 3; i++) ranks_.emplace_back(3);
  }

  void say(uint8_t rank, const Request& request, bool waits = false) {
    ranks_[rank].announce(request);
    flush(rank, waits);
  }
  void all_say(const Request& request) {
    for (uint8_t rank = 0; rank < 3; rank++) say(rank, request);
  }
  void say_shutdown(uint8_t rank) {
    ranks_[rank].announce_shutdown("done");
    flush(rank, false);
  }

  void write(const std::filesystem::path& folder, const std::string& name) const {
    write_file(folder / "coordinator" / name, up_);
    write_file(folder / "negotiator" / name, down_);
  }

 private:
  void flush(uint8_t rank, bool waits) {
    now_ += waits ? std::chrono::seconds(100) : std::chrono::milliseconds(1);
    ByteView bytes = ranks_[rank].outgoing();
    write_step(up_, {.rank = rank, .waits = waits, .message = bytes});
    if (!root_.receive(Rank{rank}, bytes, now_).ok()) std::abort();
    ranks_[rank].clear_outgoing();
    Bytes message;
    if (!root_.decide(now_, message)) return;
    write_step(down_, {.rank = rank, .waits = waits, .message = message});
    std::vector<Decision> decisions;
    for (Negotiator& reader : ranks_) {
      if (!reader.receive(message, decisions).ok()) std::abort();
    }
  }

  Coordinator root_;
  std::deque<Negotiator> ranks_;
  TimePoint now_{};
  Bytes up_, down_;
};

// Five ranks in the tree of tree.h; records what the root and the upper node receive.
class TreeConversation {
 public:
  TreeConversation()
      : root_(below_root(), tree_settings()),
        upper_(kTreeRanks, below_node(), node_settings()),
        lower_(kTreeRanks, {{3}, {4}}, node_settings()) {
    for (int i = 0; i < kTreeRanks; i++) ranks_.emplace_back(kTreeRanks);
  }

  void say(uint8_t rank, const Request& request, bool waits = false) {
    ranks_[rank].announce(request);
    flush(rank, waits);
  }
  void all_say(const Request& request) {
    for (uint8_t rank = 0; rank < kTreeRanks; rank++) {
      ranks_[rank].announce(request);
      flush(rank, false);
    }
  }
  void say_shutdown(uint8_t rank) {
    ranks_[rank].announce_shutdown("done");
    flush(rank, false);
  }

  void write(const std::filesystem::path& folder, const std::string& name) const {
    write_file(folder / "aggregator" / name, upper_heard_);
    write_file(folder / "tree_root" / name, root_heard_);
  }

 private:
  void flush(uint8_t rank, bool waits) {
    now_ += waits ? std::chrono::seconds(100) : std::chrono::milliseconds(1);
    ByteView bytes = ranks_[rank].outgoing();
    if (rank == 0) {
      tell_root(rank, bytes, waits);
    } else if (rank <= 2) {
      tell_upper(rank, bytes, waits);
    } else if (!lower_.receive(Rank{rank}, bytes, now_).ok()) {
      std::abort();
    }
    ranks_[rank].clear_outgoing();
    pass_on(waits);
    Bytes message;
    if (!root_.decide(now_, message)) return;
    write_step(upper_heard_, {.rank = 0, .waits = false, .message = message});
    std::vector<Decision> decisions;
    if (!upper_.follow(message, now_).ok() || !lower_.follow(message, now_).ok()) std::abort();
    for (Negotiator& reader : ranks_) {
      if (!reader.receive(message, decisions).ok()) std::abort();
    }
    pass_on(false);
  }
  void pass_on(bool waits) {
    Bytes message;
    if (lower_.flush(now_, message)) tell_upper(3, message, waits);
    message.clear();
    if (upper_.flush(now_, message)) tell_root(1, message, waits);
  }
  void tell_upper(uint8_t rank, ByteView message, bool waits) {
    write_step(upper_heard_, {.rank = rank, .waits = waits, .message = message});
    if (!upper_.receive(Rank{rank}, message, now_).ok()) std::abort();
  }
  void tell_root(uint8_t rank, ByteView message, bool waits) {
    write_step(root_heard_, {.rank = rank, .waits = waits, .message = message});
    if (!root_.receive(Rank{rank}, message, now_).ok()) std::abort();
  }

  Coordinator root_;
  Aggregator upper_, lower_;
  std::deque<Negotiator> ranks_;
  TimePoint now_{};
  Bytes root_heard_, upper_heard_;
};

// Two ranks that carry; records what the root and rank 1 receive.
class PairConversation {
 public:
  PairConversation() : root_(2, {.carried = &ear_}), ranks_{Negotiator(2), Negotiator(2, &ear_)} {}

  void say(uint8_t rank, const Request& request, bool carries) {
    Bytes tensor(carries ? bytes_of(request) : 0);
    ranks_[rank].announce(request, tensor);
    ByteView bytes = ranks_[rank].outgoing();
    write_step(up_, {.rank = rank, .waits = false, .message = bytes});
    if (!root_.receive(Rank{rank}, bytes, now_).ok()) std::abort();
    ranks_[rank].clear_outgoing();
    ranks_[rank].finish_offered();
    Bytes message;
    bool says_something = root_.decide(now_, message);
    root_.finish_offered(now_);
    if (!says_something) return;
    write_step(down_, {.rank = rank, .waits = false, .message = message});
    std::vector<Decision> decisions;
    for (Negotiator& reader : ranks_) {
      if (!reader.receive(message, decisions).ok()) std::abort();
    }
  }

  void write(const std::filesystem::path& folder) const {
    write_file(folder / "pair_root" / "carried", up_);
    write_file(folder / "negotiator" / "carried", down_);
  }

 private:
  struct Ear final : CarriedListener {
    void on_carried(const Request&, ByteView) override {}
  };

  Ear ear_;
  Coordinator root_;
  Negotiator ranks_[2];
  TimePoint now_{};
  Bytes up_, down_;
};

void converse_in_pair(PairConversation& talk) {
  Request a = request_of(Kind::allreduce, "a", {});
  for (uint8_t first : {uint8_t{0}, uint8_t{1}}) {
    for (bool one : {false, true}) {
      for (bool other : {false, true}) {
        talk.say(first, a, one);
        talk.say(static_cast<uint8_t>(1 - first), a, other);
      }
    }
  }
  talk.say(0, a, true);
  talk.say(1, request_of(Kind::join, "join", {}), false);
  talk.say(0, request_of(Kind::join, "join", {}), false);
}

template <class Talk>
void converse(Talk& talk, const std::string& about) {
  Request a = request_of(Kind::allreduce, "a");
  if (about == "cache") {
    for (int i = 0; i < 3; i++) talk.all_say(a);
    for (const char* name : {"b", "c", "a"}) talk.all_say(request_of(Kind::allgather, name));
  } else if (about == "mismatch") {
    talk.all_say(a);
    talk.say(0, a);
    talk.say(1, request_of(Kind::allreduce, "a", {9}));
    talk.say(2, request_of(Kind::broadcast, "a"));
  } else if (about == "group") {
    for (const char* name : {"x", "y"}) {
      Request member = request_of(Kind::allreduce, name);
      member.group = "g";
      member.group_size = 2;
      talk.all_say(member);
    }
  } else if (about == "join") {
    talk.say(1, request_of(Kind::join, "join", {}));
    talk.say(0, a);
    talk.say(2, a);
    talk.say(0, request_of(Kind::join, "join", {}));
    talk.say(2, request_of(Kind::join, "join", {}));
  } else if (about == "process_set") {
    Request add = request_of(Kind::add_process_set, "add", {});
    add.ranks = {0, 2};
    talk.all_say(add);
    a.process_set = 1;
    talk.say(0, a);
    talk.say(2, a);
    talk.say(0, a);
    Request remove = request_of(Kind::remove_process_set, "remove", {});
    remove.process_set = 1;
    talk.all_say(remove);
  } else if (about == "stall") {
    talk.say(0, a);
    talk.say(1, request_of(Kind::barrier, "barrier", {}), true);
    talk.say_shutdown(2);
  }
}

// What goes up one by one.
void converse_slowly(TreeConversation& talk) {
  Request a = request_of(Kind::allreduce, "a");
  talk.all_say(a);
  talk.say(3, a);
  talk.say(1, request_of(Kind::barrier, "barrier", {}), true);
  talk.say(4, a);
  Request on_device = request_of(Kind::allreduce, "b");
  on_device.device = 1;
  talk.all_say(on_device);
  talk.say(4, request_of(Kind::join, "join", {}));
}

// Outputs of host discovery scripts.
void write_discovery_corpus(const std::filesystem::path& folder) {
  constexpr std::string_view kGood = "# today\na\nuser@b.example.org:2 # twice\n[fe80::1%eth0]:4\n::1\n\na:3\n";
  constexpr std::string_view kBad = "a:x\n-o\ntwo words\n[::1\n[::1]2\n[x]:1\n:3\na:99999\na:-1\r\n\x1b[31m\n";
  write_file(folder / "good", std::as_bytes(std::span(kGood)));
  write_file(folder / "bad", std::as_bytes(std::span(kBad)));
}

}  // namespace
}  // namespace hvd

int main(int count, char** arguments) {
  if (count != 2) return 2;
  for (const char* about : {"cache", "mismatch", "group", "join", "process_set", "stall"}) {
    hvd::Conversation talk;
    hvd::converse(talk, about);
    talk.write(arguments[1], about);
    hvd::TreeConversation tree;
    hvd::converse(tree, about);
    tree.write(arguments[1], about);
  }
  hvd::write_connection_corpus(arguments[1]);
  hvd::write_agent_corpus(std::filesystem::path(arguments[1]) / "agent");
  hvd::write_elastic_corpus(std::filesystem::path(arguments[1]) / "elastic");
  hvd::write_discovery_corpus(std::filesystem::path(arguments[1]) / "discovery");
  hvd::PairConversation pair;
  hvd::converse_in_pair(pair);
  pair.write(arguments[1]);
  hvd::TreeConversation slow;
  hvd::converse_slowly(slow);
  slow.write(arguments[1], "slow");
}
