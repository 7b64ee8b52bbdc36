#include "launcher/doctor/door.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "net/interfaces.h"

namespace hvd::launcher {
namespace {

std::vector<Address> describe_endpoints(const std::vector<Endpoint>& endpoints) {
  auto interfaces = read_interfaces();
  std::vector<Address> addresses;
  for (const Endpoint& endpoint : endpoints) {
    IpAddress ip = endpoint.address.ip;
    ip.scope = 0;  // it is meaningless to other hosts
    bool is_virtual = interfaces.ok() && std::any_of(interfaces->begin(), interfaces->end(), [&](const auto& one) {
                        return one.is_virtual && one.interface == endpoint.interface;
                      });
    addresses.push_back(
        {.ip = to_text(ip), .port = endpoint.address.port, .interface = endpoint.interface, .is_virtual = is_virtual});
  }
  return addresses;
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Result<std::unique_ptr<ProbeDoor>> ProbeDoor::open(const std::vector<std::string>& interfaces,
                                                   const Credentials& credentials, int32_t rank, WallClock clock) {
  auto listener = listen_on(interfaces);
  if (!listener.ok()) return listener.status();
  Welcome welcome{.purposes = {Purpose::data}, .generation = std::nullopt, .rank = rank};
  auto acceptor = Acceptor::create(std::move(*listener), credentials, std::move(welcome));
  if (!acceptor.ok()) return acceptor.status();
  UniqueFd bell(::eventfd(0, EFD_CLOEXEC));
  if (!bell) return system_error("cannot open", "an eventfd");
  return std::unique_ptr<ProbeDoor>(new ProbeDoor(std::move(*acceptor), std::move(bell), std::move(clock)));
}

ProbeDoor::ProbeDoor(std::unique_ptr<Acceptor> acceptor, UniqueFd bell, WallClock clock)
    : acceptor_(std::move(acceptor)),
      bell_(std::move(bell)),
      clock_(std::move(clock)),
      addresses_(describe_endpoints(acceptor_->endpoints())),
      thread_([this] { serve(); }) {}

ProbeDoor::~ProbeDoor() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t rung = ::write(bell_.get(), &one, sizeof one);
}

void ProbeDoor::serve() {
  std::vector<Accepted> guests;
  while (true) {
    std::vector<pollfd> wanted{{.fd = bell_.get(), .events = POLLIN, .revents = 0},
                               {.fd = acceptor_->descriptor(), .events = POLLIN, .revents = 0}};
    for (const Accepted& guest : guests)
      wanted.push_back({.fd = guest.stream->descriptor(), .events = POLLIN, .revents = 0});
    ::poll(wanted.data(), wanted.size(), -1);  // the acceptor has its own alarm
    if (wanted[0].revents != 0) return;
    acceptor_->poll(Clock::now(), guests);
    answer(guests);
  }
}

void ProbeDoor::answer(std::vector<Accepted>& guests) const {
  std::erase_if(guests, [&](const Accepted& guest) {
    std::array<std::byte, 1> question;
    for (;;) {
      auto count = guest.stream->read(question);
      if (!count.ok()) return true;
      if (*count == 0) return false;
      Bytes time;
      Encoder(time).f64(clock_());
      auto written = guest.stream->write(time);  // a few bytes always fit, unless the other side never reads
      if (!written.ok() || *written != time.size()) return true;
    }
  });
}

}  // namespace hvd::launcher
