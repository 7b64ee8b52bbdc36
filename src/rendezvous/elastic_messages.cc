#include "rendezvous/elastic_messages.h"

namespace hvd {
namespace {

constexpr int32_t kLargestWorld = 1 << 20;

void put(Encoder& out, Generation generation) { out.varint(static_cast<uint64_t>(generation)); }
void put_reason(Encoder& out, const std::string& text) {
  out.text(std::string_view(text).substr(0, kLongestElasticReason));
}

void write(Encoder& out, const WorkerReady& m) {
  put(out, m.last);
  put_reason(out, m.reason);
  out.signed_varint(m.lost_rank);
}
void write(Encoder& out, const WorkerLeaves& m) { put_reason(out, m.reason); }
void write(Encoder& out, const Place& m) {
  put(out, m.generation);
  for (int32_t number : {m.rank, m.size, m.local_rank, m.local_size, m.cross_rank, m.cross_size})
    out.signed_varint(number);
}
void write(Encoder& out, const WorldVoid& m) {
  put(out, m.generation);
  put_reason(out, m.reason);
}
void write(Encoder& out, const Dismissal& m) { put_reason(out, m.reason); }
void write(Encoder& out, const JobOver& m) { put_reason(out, m.reason); }
void write(Encoder& out, const HostsChanged& m) {
  out.u8(static_cast<uint8_t>(m.change));
  out.f64(m.timestamp);
}

void read(Decoder& in, Generation& generation) { generation = Generation{in.varint()}; }
void read(Decoder& in, std::string& text) { text = std::string(in.text()); }
void read(Decoder& in, WorkerReady& m) {
  read(in, m.last);
  read(in, m.reason);
  int64_t rank = in.signed_varint();
  if (rank < -1 || rank >= kLargestWorld) in.fail();
  m.lost_rank = static_cast<int32_t>(rank);
}
void read(Decoder& in, WorkerLeaves& m) { read(in, m.reason); }
void read(Decoder& in, Place& m) {
  read(in, m.generation);
  for (auto [rank, size] :
       {std::pair(&m.rank, &m.size), {&m.local_rank, &m.local_size}, {&m.cross_rank, &m.cross_size}}) {
    int64_t wide_rank = in.signed_varint(), wide_size = in.signed_varint();
    if (wide_rank < 0 || wide_rank >= wide_size || wide_size > kLargestWorld) in.fail();
    *rank = static_cast<int32_t>(wide_rank);
    *size = static_cast<int32_t>(wide_size);
  }
}
void read(Decoder& in, WorldVoid& m) {
  read(in, m.generation);
  read(in, m.reason);
}
void read(Decoder& in, Dismissal& m) { read(in, m.reason); }
void read(Decoder& in, JobOver& m) { read(in, m.reason); }
void read(Decoder& in, HostsChanged& m) {
  m.change = in.one_of(HostsChanged::Change::mixed);
  if (static_cast<uint8_t>(m.change) == 0) in.fail();
  m.timestamp = in.f64();
}

template <size_t kind = 0>
bool read_kind(size_t wanted, Decoder& in, ElasticMessage& message) {
  if constexpr (kind == std::variant_size_v<ElasticMessage>) {
    return false;
  } else {
    if (kind != wanted) return read_kind<kind + 1>(wanted, in, message);
    read(in, message.emplace<kind>());
    return true;
  }
}

}  // namespace

Bytes encode(const ElasticMessage& message) {
  Bytes bytes;
  Encoder out(bytes);
  out.u8(static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& known) { write(out, known); }, message);
  return bytes;
}

Result<ElasticMessage> decode_elastic_message(ByteView bytes) {
  Decoder in(bytes);
  ElasticMessage message;
  uint8_t kind = in.u8();
  if (!read_kind(kind, in, message) || !in.ok() || !in.at_end())
    return Status(Code::unknown, "a malformed message of an elastic job");
  return message;
}

}  // namespace hvd
