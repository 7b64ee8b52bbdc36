#include "launcher/agents/agent_messages.h"

#include <utility>

namespace hvd::launcher {
namespace {

// One function lists the fields of a message, for both directions: `Writer` and `Reader` have the same functions.
class Writer {
 public:
  explicit Writer(Bytes& bytes) : out_(bytes) {}
  void operator()(const std::string& text) { out_.text(text); }
  void operator()(bool value) { out_.u8(value ? 1 : 0); }
  void operator()(double value) { out_.f64(value); }
  void operator()(int32_t value) { out_.signed_varint(value); }
  void operator()(int64_t value) { out_.signed_varint(value); }
  void operator()(uint64_t value) { out_.varint(value); }
  void operator()(WorkerStream value) { out_.u8(static_cast<uint8_t>(value)); }
  void operator()(const Origin& origin) { encode(out_, origin); }
  template <class First, class Second>
  void operator()(const std::pair<First, Second>& pair) {
    (*this)(pair.first);
    (*this)(pair.second);
  }
  template <class Item>
  void operator()(const std::vector<Item>& items) {
    out_.varint(items.size());
    for (const Item& item : items) (*this)(item);
  }

 private:
  Encoder out_;
};

class Reader {
 public:
  explicit Reader(ByteView bytes) : in_(bytes) {}
  Decoder& decoder() { return in_; }
  void operator()(std::string& text) { text = std::string(in_.text()); }
  void operator()(bool& value) { value = in_.u8() != 0; }
  void operator()(double& value) { value = in_.f64(); }
  void operator()(int32_t& value) {
    int64_t wide = in_.signed_varint();
    value = static_cast<int32_t>(wide);
    if (value != wide) in_.fail();
  }
  void operator()(int64_t& value) { value = in_.signed_varint(); }
  void operator()(uint64_t& value) { value = in_.varint(); }
  void operator()(WorkerStream& value) { value = in_.one_of(WorkerStream::err); }
  void operator()(Origin& origin) { origin = decode_origin(in_); }
  template <class First, class Second>
  void operator()(std::pair<First, Second>& pair) {
    (*this)(pair.first);
    (*this)(pair.second);
  }
  template <class Item>
  void operator()(std::vector<Item>& items) {
    items.resize(in_.count());
    for (Item& item : items) (*this)(item);
  }

 private:
  Decoder in_;
};

template <class Visitor, class... Fields>
void each(Visitor& visit, Fields&... values) {
  (visit(values), ...);
}

template <class V>
void fields(V& v, auto& m, AgentHello*) {
  each(v, m.protocol, m.version, m.host, m.pid, m.cores);
}
template <class V>
void fields(V& v, auto& m, WorkerStarted*) {
  each(v, m.worker, m.pid);
}
template <class V>
void fields(V& v, auto& m, WorkerNotStarted*) {
  each(v, m.worker, m.reason);
}
template <class V>
void fields(V& v, auto& m, WorkerOutput*) {
  each(v, m.worker, m.stream, m.bytes);
}
template <class V>
void fields(V& v, auto& m, WorkerOutputEnd*) {
  each(v, m.worker, m.stream);
}
template <class V>
void fields(V& v, auto& m, WorkerEnded*) {
  each(v, m.worker, m.ended.ending.signalled, m.ended.ending.number, m.ended.out_of_memory, m.ended.was_stopped);
}
template <class V>
void fields(V& v, auto& m, AgentNotice*) {
  each(v, m.text);
}
template <class V>
void fields(V&, auto&, AgentEmpty*) {}
template <class V>
void fields(V& v, auto& m, AgentWork*) {
  each(v, m.work.command, m.work.directory, m.work.variables, m.work.defaults, m.work.bind_to, m.silence, m.beat);
}
template <class V>
void fields(V& v, auto& m, AgentStart*) {
  each(v, m.start.worker, m.start.local_rank, m.start.local_size, m.start.variables);
}
template <class V>
void fields(V& v, auto& m, AgentStop*) {
  each(v, m.worker, m.at_once);
}
template <class V>
void fields(V& v, auto& m, AgentRoom*) {
  each(v, m.stream, m.bytes);
}
template <class V>
void fields(V&, auto&, AgentLeave*) {}
template <class V>
void fields(V&, auto&, AgentBeat*) {}
template <class V>
void fields(V& v, auto& m, AgentObserve*) {
  each(v, m.request.id, m.request.worker, m.request.stacks, m.request.operations);
}
template <class V>
void fields(V& v, auto& m, AgentObserved*) {
  each(v, m.id, m.json, m.is_last);
}
template <class V>
void fields(V& v, auto& m, WorkerReport*) {
  each(v, m.worker, m.report.rank, m.report.origin);
}

template <size_t kind = 0>
bool read_kind(size_t wanted, Reader& reader, AgentMessage& message) {
  if constexpr (kind == std::variant_size_v<AgentMessage>) {
    return false;
  } else {
    if (kind != wanted) return read_kind<kind + 1>(wanted, reader, message);
    auto& known = message.emplace<kind>();
    fields(reader, known, &known);
    return true;
  }
}

}  // namespace

Bytes encode(const AgentMessage& message) {
  Bytes bytes;
  bytes.push_back(static_cast<std::byte>(message.index()));
  Writer writer(bytes);
  std::visit([&]<class M>(const M& known) { fields(writer, known, static_cast<M*>(nullptr)); }, message);
  return bytes;
}

Result<AgentMessage> decode_agent_message(ByteView bytes) {
  Reader reader(bytes);
  AgentMessage message;
  uint8_t kind = reader.decoder().u8();
  if (!read_kind(kind, reader, message) || !reader.decoder().ok() || !reader.decoder().at_end())
    return Status(Code::unknown, "a message of an unknown kind");
  return message;
}

}  // namespace hvd::launcher
