// The operations of this rank that are not done, by (process set, name), and the handles callers hold.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/submission.h"

namespace hvd {

class OperationTable {
 public:
  struct Found {
    SubmissionRef submission;  // null: this rank has no such operation
    Operation* operation = nullptr;
  };

  // Gives the submission a handle and takes in its names. Fails, changing nothing, if one of them is in flight.
  Status add(const SubmissionRef& submission);
  SubmissionRef find(int64_t handle) const;
  void release(int64_t handle);

  Found find(int32_t process_set, std::string_view name) const;
  // One operation has come to an end. True when it was the last of its submission, which is then done.
  bool finish(const SubmissionRef& submission, Operation& operation, Status status);
  // Ends everything in flight that no backend is running (it ends that itself, and its buffers must stay until then);
  // returns the submissions that are done by it.
  std::vector<SubmissionRef> finish_all(const Status& status);
  // Refuses every add() from now on.
  void close(const Status& status);
  size_t in_flight() const;

 private:
  struct Key {
    int32_t process_set;
    std::string name;
  };
  struct KeyView {
    int32_t process_set;
    std::string_view name;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const KeyView& key) const {
      return std::hash<std::string_view>()(key.name) ^ static_cast<size_t>(key.process_set) * 0x9e3779b97f4a7c15ull;
    }
    size_t operator()(const Key& key) const { return (*this)(KeyView{key.process_set, key.name}); }
  };
  struct Equal {
    using is_transparent = void;
    static KeyView view(const Key& key) { return {key.process_set, key.name}; }
    static KeyView view(const KeyView& key) { return key; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return view(a).process_set == view(b).process_set && view(a).name == view(b).name;
    }
  };
  bool finish_locked(const SubmissionRef& submission, Operation& operation, Status status);

  mutable std::mutex mutex_;  // guards everything below
  std::unordered_map<Key, Found, Hash, Equal> in_flight_;
  std::unordered_map<int64_t, SubmissionRef> handles_;
  int64_t next_handle_ = 1;
  Status closed_;
};

}  // namespace hvd
