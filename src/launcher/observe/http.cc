#include "launcher/observe/http.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

namespace hvd::launcher {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

bool read_query(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    size_t equals = std::min(item.find('='), item.size());
    auto name = percent_decoded(item.substr(0, equals));
    auto value = percent_decoded(item.substr(std::min(equals + 1, item.size())));
    if (!name || !value) return false;
    query[*name] = *value;
  }
  return true;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
  }
  return "Error";
}

ParsedRequest bad(int status) { return {.state = ParsedRequest::State::bad, .request = {}, .error = status}; }

}  // namespace

ParsedRequest parse_request(std::string_view bytes) {
  size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return bytes.size() >= kLongestRequest ? bad(431) : ParsedRequest{};
  if (end >= kLongestRequest) return bad(431);
  std::string_view head = bytes.substr(0, end);
  std::string_view line = head.substr(0, head.find("\r\n"));
  size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || last <= first) return bad(400);
  if (!line.substr(last + 1).starts_with("HTTP/1.")) return bad(400);
  ParsedRequest parsed{.state = ParsedRequest::State::complete, .request = {}};
  HttpRequest& request = parsed.request;
  request.method = line.substr(0, first);
  if (request.method != "GET" && request.method != "POST") return bad(405);
  std::string_view target = line.substr(first + 1, last - first - 1);
  size_t mark = std::min(target.find('?'), target.size());
  auto path = percent_decoded(target.substr(0, mark));
  if (!path || !path->starts_with('/')) return bad(400);
  request.path = std::move(*path);
  if (mark < target.size() && !read_query(target.substr(mark + 1), request.query)) return bad(400);
  if (auto token = request.query.find("token"); token != request.query.end()) request.token = token->second;
  head.remove_prefix(std::min(head.size(), line.size() + 2));
  while (!head.empty()) {
    std::string_view field = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(head.size(), field.size() + 2));
    size_t colon = field.find(':');
    if (colon == std::string_view::npos) return bad(400);
    std::string_view value = trimmed(field.substr(colon + 1));
    if (lower(field.substr(0, colon)) == "authorization" && lower(value.substr(0, 7)) == "bearer ")
      request.token = trimmed(value.substr(7));
  }
  return parsed;
}

std::string reply_text(const HttpReply& reply) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'\r\nConnection: close\r\n",
      reply.status, reason_of(reply.status), reply.is_stream ? "text/event-stream" : reply.type);
  if (!reply.is_stream) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
  if (reply.status == 401) text += "WWW-Authenticate: Bearer\r\n";
  return text + "\r\n" + reply.body;
}

std::string event_text(std::string_view data) { return fmt::format("data: {}\n\n", data); }

bool equal_tokens(std::string_view one, std::string_view other) {
  uint32_t difference = one.size() == other.size() ? 0 : 1;
  for (size_t i = 0; i < one.size(); i++) {
    char against = other.empty() ? '\0' : other[i % other.size()];
    difference |= static_cast<uint32_t>(static_cast<unsigned char>(one[i] ^ against));
  }
  return difference == 0;
}

std::string make_token() {
  std::array<unsigned char, 16> bytes{};
  size_t filled = 0;
  while (filled < bytes.size()) {
    ssize_t count = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (count > 0) filled += static_cast<size_t>(count);
  }
  std::string token;
  for (unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

}  // namespace hvd::launcher
