// As much of HTTP/1.1 as a page and a scraper need: one request for each connection, without a body.
// Thread rule: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hvd::launcher {

inline constexpr size_t kLongestRequest = 8 << 10;

struct HttpRequest {
  std::string method;  // "GET" or "POST"
  std::string path;    // decoded, without the query
  std::map<std::string, std::string> query;
  std::string token;  // of "Authorization: Bearer TOKEN", or ?token=TOKEN
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  bool is_stream = false;  // server-sent events follow
  bool is_later = false;   // HttpServer::answer() follows
};

// The request at the front of `bytes`, once it is complete.
struct ParsedRequest {
  enum class State { incomplete, bad, complete };
  State state = State::incomplete;
  HttpRequest request;
  int error = 400;  // status, if it is bad
};
ParsedRequest parse_request(std::string_view bytes);

std::string reply_text(const HttpReply& reply);
std::string event_text(std::string_view data);  // of a stream; `data` is one line

// Takes the same time whatever differs.
bool equal_tokens(std::string_view one, std::string_view other);

// 32 hexadecimal digits that nobody can guess.
std::string make_token();

}  // namespace hvd::launcher
