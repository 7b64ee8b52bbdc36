// A small server in an event loop, for few clients: a browser, a scraper, horovodrun --top. A client that is slow, or
// that sends nonsense, loses its connection and disturbs nothing else. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/observe/http.h"
#include "launcher/processes/poll_set.h"

namespace hvd::launcher {

class HttpServer {
 public:
  // `from`: names the client for answer().
  using Handler = std::function<HttpReply(const HttpRequest& request, uint64_t from)>;

  // Port 0: any.
  static Result<HttpServer> listen(const std::string& address, uint16_t port, Handler handler);
  // On this machine, for programs of the same user only; the name is not one of a file.
  static Result<HttpServer> listen_locally(const std::string& name, Handler handler);

  uint16_t port() const { return port_; }
  void answer(uint64_t to, const HttpReply& reply);  // a reply that was left for later
  void publish(std::string_view data);               // to all streams
  bool has_streams() const;
  void add_to(PollSet& set);

 private:
  struct Client {
    uint64_t id = 0;
    UniqueFd socket;
    std::string in, out;
    bool is_stream = false, is_waiting = false, is_closing = false, is_dead = false;
    TimePoint give_up = kNever;
  };
  HttpServer(UniqueFd socket, Handler handler) : socket_(std::move(socket)), handler_(std::move(handler)) {}

  void accept();
  void read(Client& client);
  void write(Client& client);
  void reply(Client& client, const HttpReply& reply);

  UniqueFd socket_;
  Handler handler_;
  uint16_t port_ = 0;
  bool is_local_ = false;
  uint64_t last_id_ = 0;
  std::list<Client> clients_;  // addresses stay
};

// Names the socket of a launcher: "horovodrun.UID.PID", in the abstract namespace.
std::string control_name(uid_t user, pid_t pid);

}  // namespace hvd::launcher
