#include "rendezvous/store_messages.h"

namespace hvd {
namespace {

ByteView bytes_of_text(std::string_view text) { return std::as_bytes(std::span(text)); }

void put(Encoder& out, ByteView bytes) {
  out.varint(bytes.size());
  out.bytes(bytes);
}

}  // namespace

Bytes encode(const StoreRequest& request) {
  Bytes message;
  Encoder out(message);
  out.varint(request.id);
  out.u8(static_cast<uint8_t>(request.verb));
  out.text(request.key);
  put(out, request.value);
  out.varint(request.count);
  return message;
}

Bytes encode(const StoreReply& reply) {
  Bytes message;
  Encoder out(message);
  out.varint(reply.id);
  out.u8(static_cast<uint8_t>(reply.code));
  out.text(reply.message);
  put(out, reply.value);
  out.varint(reply.entries.size());
  for (const auto& [key, value] : reply.entries) {
    put(out, bytes_of_text(key));
    put(out, value);
  }
  return message;
}

Result<StoreRequest> decode_request(ByteView message) {
  Decoder in(message);
  StoreRequest request;
  request.id = in.varint();
  request.verb = in.one_of(StoreVerb::remove);
  request.key = in.text();
  request.value = in.bytes(in.varint());
  request.count = in.varint();
  if (in.ok() && in.at_end()) return request;
  return Status(Code::unknown, "a malformed request to the store");
}

Result<StoreReply> decode_reply(ByteView message) {
  Decoder in(message);
  StoreReply reply;
  reply.id = in.varint();
  reply.code = in.one_of(kLastCode);
  reply.message = in.text();
  reply.value = in.bytes(in.varint());
  size_t count = in.count(2);
  for (size_t i = 0; i < count && in.ok(); i++) {
    std::string_view key = in.text();
    ByteView value = in.bytes(in.varint());
    reply.entries.emplace_back(key, Bytes(value.begin(), value.end()));
  }
  if (in.ok() && in.at_end()) return reply;
  return Status(Code::unknown, "a malformed reply of the store");
}

}  // namespace hvd
