// Messages between clients and server of the store: one request at a time, and its reply. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/wire.h"
#include "rendezvous/store.h"

namespace hvd {

enum class StoreVerb : uint8_t { set, get, gather, remove };

struct StoreRequest {
  uint64_t id = 0;  // increases; a new request replaces one that is still waiting
  StoreVerb verb = StoreVerb::set;
  std::string_view key;  // or prefix; views refer to the message
  ByteView value;        // set
  uint64_t count = 0;    // gather
};

struct StoreReply {
  uint64_t id = 0;
  Code code = Code::ok;
  std::string_view message;  // when not ok
  ByteView value;            // get
  Store::Entries entries;    // gather
};

Bytes encode(const StoreRequest& request);
Bytes encode(const StoreReply& reply);
Result<StoreRequest> decode_request(ByteView message);
Result<StoreReply> decode_reply(ByteView message);

}  // namespace hvd
