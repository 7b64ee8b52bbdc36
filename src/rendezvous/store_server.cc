#include "rendezvous/store_server.h"

#include <pthread.h>

#include <exception>
#include <map>

#include "base/bell.h"
#include "base/log.h"
#include "net/framed.h"
#include "net/poller.h"
#include "rendezvous/store_frames.h"
#include "rendezvous/store_table.h"

namespace hvd {
namespace {

constexpr uint64_t kBell = 0, kAcceptor = 1, kFirstClient = 2;

// The state of the server's thread.
class Service {
 public:
  Service(Poller poller, std::unique_ptr<Acceptor> acceptor, StoreLimits limits, StoreServer::TakeWorker take_worker)
      : poller_(std::move(poller)),
        acceptor_(std::move(acceptor)),
        limits_(limits),
        table_(limits),
        take_worker_(std::move(take_worker)) {}

  void run(const std::stop_token& stop) {
    std::vector<Accepted> accepted;
    while (!stop.stop_requested()) {
      acceptor_->poll(Clock::now(), accepted);
      for (Accepted& each : accepted) welcome(std::move(each));
      accepted.clear();
      // Clients with pending requests get one round each; only then may the thread sleep.
      std::vector<uint64_t> ready = std::exchange(busy_, {});
      const std::vector<uint64_t>& events = poller_.wait(ready.empty() ? kNever : TimePoint::min());
      ready.insert(ready.end(), events.begin(), events.end());
      for (uint64_t tag : ready) {
        if (tag >= kFirstClient) serve(tag);
      }
    }
  }

 private:
  struct Client {
    FramedStream frames;
    SocketAddress from;
  };

  void welcome(Accepted accepted) {
    if (accepted.identity.purpose == Purpose::elastic) return take_worker_(std::move(accepted));
    uint64_t id = next_++;
    int descriptor = accepted.stream->descriptor();
    clients_.emplace(id, Client{FramedStream(std::move(accepted.stream), store_frames(limits_)), accepted.from});
    if (Status status = poller_.add(descriptor, id); !status.ok()) return drop(id, status);
    serve(id);
  }

  // Takes requests only while replies can be sent: a client that does not read is not served.
  void serve(uint64_t id) {
    for (int i = 0; i < kRequestsAtOnce; i++) {
      auto found = clients_.find(id);
      if (found == clients_.end()) return;
      FramedStream& frames = found->second.frames;
      if (Status status = frames.flush(); !status.ok()) return drop(id, status);
      if (frames.has_unsent()) return;
      auto message = frames.receive();
      if (!message.ok()) return drop(id, message.status());
      if (!*message) return;
      auto request = decode_request(**message);
      if (!request.ok()) return drop(id, request.status());
      std::vector<StoreTable::Answer> answers;
      table_.handle(id, *request, answers);
      for (const StoreTable::Answer& answer : answers) send(answer);
    }
    busy_.push_back(id);
  }

  void send(const StoreTable::Answer& answer) {
    auto found = clients_.find(answer.client);
    if (found == clients_.end()) return;
    if (Status status = found->second.frames.send(answer.reply); !status.ok()) drop(answer.client, status);
  }

  void drop(uint64_t id, const Status& status) {
    auto found = clients_.find(id);
    if (status.code() != Code::peer_lost) {
      log_warning("the store dropped a client at {}: {}", to_text(found->second.from), status.message());
    }
    table_.forget(id);
    clients_.erase(found);
  }

  static constexpr int kRequestsAtOnce = 64;

  Poller poller_;
  std::unique_ptr<Acceptor> acceptor_;
  StoreLimits limits_;
  StoreTable table_;
  StoreServer::TakeWorker take_worker_;
  std::map<uint64_t, Client> clients_;
  uint64_t next_ = kFirstClient;
  std::vector<uint64_t> busy_;
};

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::create(Listener listener, const Credentials& credentials,
                                                         StoreLimits limits, AcceptorLimits acceptor_limits,
                                                         TakeWorker take_worker) {
  Welcome welcome{.purposes = {Purpose::store}};
  if (take_worker) welcome.purposes.push_back(Purpose::elastic);
  auto acceptor = Acceptor::create(std::move(listener), credentials, std::move(welcome), std::move(acceptor_limits));
  if (!acceptor.ok()) return acceptor.status();
  auto bell = create_bell();
  if (!bell.ok()) return bell.status();
  auto poller = Poller::create();
  if (!poller.ok()) return poller.status();
  if (Status status = poller->add(bell->get(), kBell); !status.ok()) return status;
  if (Status status = poller->watch_readable((*acceptor)->descriptor(), kAcceptor); !status.ok()) return status;
  std::unique_ptr<StoreServer> server(new StoreServer((*acceptor)->port(), (*acceptor)->endpoints(), std::move(*bell)));
  auto service = std::make_unique<Service>(std::move(*poller), std::move(*acceptor), limits, std::move(take_worker));
  server->thread_ = std::jthread([service = std::move(service)](const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "hvd-store");
    try {
      service->run(stop);
    } catch (const std::exception& problem) {
      log_error("the job's store ended: {}", problem.what());
    }
  });
  return server;
}

StoreServer::~StoreServer() {
  thread_.request_stop();
  ring(bell_);
  thread_.join();
}

}  // namespace hvd
