// The leaders of a world's hosts meet: each publishes its host's record in the store, connects its control link to its
// parent in the tree of hosts and accepts its children. Then they agree(): reports go up the tree, the root decides,
// and the verdict goes down, so that all ranks of a world get the same error. Every wait ends at the start time-out,
// with an error that names the missing hosts, or when `interrupt` becomes readable. Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "net/acceptor.h"
#include "net/control_link.h"
#include "net/host_table.h"
#include "rendezvous/store.h"

namespace hvd {

// The key under which a host that cannot join writes the reason.
std::string failure_key(Generation generation, int32_t host);

class LeadersMeeting {
 public:
  LeadersMeeting(HostRecord own, Generation generation, Credentials credentials, Store& store, Acceptor& acceptor,
                 TimePoint deadline, int interrupt = -1);

  // Publishes and connects. agree() reports an error of this step to the connected leaders.
  void connect();

  // Combines the reports of this host and of those below it with `merge`; the root passes the result to `judge`.
  using Merge = std::function<void(Bytes& all, ByteView one)>;
  using Judge = std::function<Result<Bytes>(Bytes all)>;
  Result<Bytes> agree(Result<Bytes> own, const Merge& merge, const Judge& judge);

  // Root: removes from the store what leaders have published for this world and earlier ones. No rank reads it after
  // `judge` of the last agreement has been called.
  void clear_store();

  std::unique_ptr<ControlLink> take_parent() { return std::move(parent_); }
  std::vector<std::pair<int32_t, std::unique_ptr<ControlLink>>> take_children() { return std::move(children_); }
  std::vector<Accepted> take_early() { return std::move(early_); }  // data connections accepted so far

 private:
  Result<HostRecord> find_parent();
  Status connect_to_parent(const HostRecord& parent);
  Status await_children();
  void accept_children();
  void wait_for(std::vector<int> descriptors, TimePoint until) const;
  bool is_interrupted() const;
  bool has_all_children() const { return children_.size() == expected_.size(); }
  Status look_for_failure();
  Status explain_missing(std::string_view what);
  Result<Bytes> await_report(ControlLink& link);

  HostRecord own_;
  Generation generation_;
  Credentials credentials_;
  Store& store_;
  Acceptor& acceptor_;
  TimePoint deadline_;
  int interrupt_;                  // a descriptor; -1: none
  std::vector<int32_t> expected_;  // children
  std::unique_ptr<ControlLink> parent_;
  std::vector<std::pair<int32_t, std::unique_ptr<ControlLink>>> children_;  // by index of their host
  std::vector<Accepted> early_;
  TimePoint look_at_{};  // next time for look_for_failure()
  Status trouble_;
};

}  // namespace hvd
