// The store's values and the requests that wait for them: a pure state machine, which store_server.h connects to
// clients. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/store.h"
#include "rendezvous/store_messages.h"

namespace hvd {

class StoreTable {
 public:
  struct Answer {
    uint64_t client;
    Bytes reply;
  };

  explicit StoreTable(StoreLimits limits) : limits_(limits) {}

  // Adds the answers that result from this request: its own and those of waiting requests.
  void handle(uint64_t client, const StoreRequest& request, std::vector<Answer>& answers);
  void forget(uint64_t client);  // the client has disconnected

  size_t bytes() const { return bytes_; }

 private:
  struct Waiting {
    uint64_t id = 0;
    StoreVerb verb = StoreVerb::get;
    std::string key;
    uint64_t missing = 0;  // keys; answered when it reaches zero
  };
  using Values = std::map<std::string, Bytes, std::less<>>;

  Status set(const StoreRequest& request, std::vector<Answer>& answers);
  void remove(std::string_view prefix);
  void wait(uint64_t client, const StoreRequest& request, std::vector<Answer>& answers);
  uint64_t count_missing(const Waiting& waiting, uint64_t wanted) const;
  Bytes answer_to(const Waiting& waiting) const;
  std::pair<Values::const_iterator, Values::const_iterator> range_of(std::string_view prefix) const;

  StoreLimits limits_;
  Values values_;
  size_t bytes_ = 0;
  std::map<uint64_t, Waiting> waiting_;  // by client: each has one request at a time
};

}  // namespace hvd
