// Client of a store in another process. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/connector.h"
#include "net/credentials.h"
#include "net/framed.h"
#include "rendezvous/store.h"
#include "rendezvous/store_messages.h"

namespace hvd {

class StoreClient : public Store {
 public:
  // Connects before the deadline; `rank` is this process's (-1: not a rank). The error lists every address tried.
  static Result<std::unique_ptr<StoreClient>> connect(std::vector<Endpoint> endpoints, const Credentials& credentials,
                                                      int32_t rank, TimePoint deadline, StoreLimits limits = {});

  Status set(std::string_view key, ByteView value, TimePoint deadline) override;
  Result<Bytes> get(std::string_view key, TimePoint deadline) override;
  Result<Entries> gather(std::string_view prefix, size_t count, TimePoint deadline) override;
  Status remove(std::string_view prefix, TimePoint deadline) override;

 private:
  StoreClient(std::unique_ptr<Stream> stream, std::string server, StoreLimits limits);
  // The message that answers the request; the decoded reply refers to it.
  Result<Bytes> ask(StoreRequest request, TimePoint deadline);
  Result<Bytes> answer_to(uint64_t id, std::string_view about, TimePoint deadline);
  Status lost(const Status& status);

  FramedStream frames_;
  std::string server_;  // its addresses, for messages
  StoreLimits limits_;
  uint64_t last_id_ = 0;
  Status failure_;  // set once the connection is lost
};

}  // namespace hvd
