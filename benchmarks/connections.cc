// What a connection between processes costs: the handshake, the round trip of 4 bytes and the throughput, plain and
// under TLS, between two threads over the loopback interface.
//   bench_connections [seconds per figure, 1 unless told]
#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "net/acceptor.h"
#include "net/connector.h"

namespace hvd {
namespace {

[[noreturn]] void give_up(const Status& status) {
  fmt::print(stderr, "{}\n", status.message());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) give_up(result.status());
  return std::move(*result);
}

void wait_for(int descriptor, short events) {
  pollfd one{.fd = descriptor, .events = events, .revents = 0};
  ::poll(&one, 1, -1);
}

struct Pair {
  std::unique_ptr<Stream> caller, called;
};

struct Host {
  Credentials credentials;
  std::unique_ptr<Acceptor> acceptor;

  explicit Host(bool tls) : credentials{.key = must(Key::random())} {
    if (tls) credentials.tls = must(TlsContext::create(must(make_tls_identity())));
    acceptor = must(Acceptor::create(must(listen_on(std::vector{must(parse_ip("127.0.0.1"))})), credentials,
                                     {.purposes = {Purpose::data}, .rank = 0}));
  }

  // Both sides on this thread, so that no thread has to be woken.
  Pair connect() {
    Pair pair;
    TimePoint now = Clock::now();
    auto connector = must(Connector::create({.name = "the other thread",
                                             .endpoints = acceptor->endpoints(),
                                             .identity = {.purpose = Purpose::data, .from = 1, .to = 0}},
                                            credentials, now, now + seconds(10)));
    std::vector<Accepted> accepted;
    while (!pair.caller || accepted.empty()) {
      acceptor->poll(Clock::now(), accepted);
      if (pair.caller) continue;
      if (auto outcome = connector->poll(Clock::now())) pair.caller = must(std::move(*outcome));
    }
    pair.called = std::move(accepted[0].stream);
    return pair;
  }
};

bool read_all(Stream& stream, std::span<std::byte> into) {
  while (!into.empty()) {
    auto count = stream.read(into);
    if (!count.ok()) return false;
    into = into.subspan(*count);
    if (*count == 0) wait_for(stream.descriptor(), POLLIN);
  }
  return true;
}

bool write_all(Stream& stream, ByteView from) {
  while (!from.empty()) {
    auto count = stream.write(from);
    if (!count.ok()) return false;
    from = from.subspan(*count);
    if (*count == 0) wait_for(stream.descriptor(), POLLOUT);
  }
  return true;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure_connect(Host& host, Duration length) {
  std::vector<double> times;
  for (TimePoint end = Clock::now() + length; Clock::now() < end;) {
    TimePoint begin = Clock::now();
    host.connect();
    times.push_back(seconds_of(Clock::now() - begin) * 1e6);
  }
  fmt::print("  connection with handshake, both sides  {:8.1f} us\n", median(times));
}

void measure_round_trip(Host& host, Duration length) {
  Pair pair = host.connect();
  std::jthread echo([&] {
    std::array<std::byte, 4> word;
    while (read_all(*pair.called, word) && write_all(*pair.called, word)) continue;
  });
  std::vector<double> times;
  std::array<std::byte, 4> word{};
  for (TimePoint end = Clock::now() + length; Clock::now() < end;) {
    TimePoint begin = Clock::now();
    if (!write_all(*pair.caller, word) || !read_all(*pair.caller, word)) break;
    times.push_back(seconds_of(Clock::now() - begin) * 1e6);
  }
  fmt::print("  round trip of 4 bytes                  {:8.1f} us\n", median(times));
  pair.caller = nullptr;
}

void measure_throughput(Host& host, Duration length) {
  Pair pair = host.connect();
  Bytes block(1 << 20);
  size_t received = 0;
  TimePoint begin = Clock::now();
  {
    std::jthread sink([&] {
      Bytes into(1 << 20);
      while (read_all(*pair.called, into)) received += into.size();
    });
    while (Clock::now() < begin + length && write_all(*pair.caller, block)) continue;
    pair.caller = nullptr;
  }
  double gigabytes = static_cast<double>(received) / seconds_of(Clock::now() - begin) / 1e9;
  fmt::print("  throughput, one direction              {:8.2f} GB/s\n", gigabytes);
}

}  // namespace
}  // namespace hvd

int main(int count, char** arguments) {
  using namespace hvd;
  Duration length = seconds(count > 1 ? std::strtod(arguments[1], nullptr) : 1);
  for (bool tls : {false, true}) {
    fmt::print("{}\n", tls ? "TLS 1.3" : "plain");
    Host host(tls);
    measure_connect(host, length);
    measure_round_trip(host, length);
    measure_throughput(host, length);
  }
}
