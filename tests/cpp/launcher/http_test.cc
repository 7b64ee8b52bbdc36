#include "launcher/observe/http.h"

#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using State = ParsedRequest::State;

ParsedRequest parse(const std::string& text) { return parse_request(text); }

TEST(Http, ReadsARequest) {
  ParsedRequest parsed =
      parse("GET /stacks?worker=3&a=b%20c HTTP/1.1\r\nHost: x\r\nAUTHORIZATION: bearer  secret \r\n\r\n");
  ASSERT_EQ(parsed.state, State::complete);
  EXPECT_EQ(parsed.request.path, "/stacks");
  EXPECT_EQ(parsed.request.query.at("worker"), "3");
  EXPECT_EQ(parsed.request.query.at("a"), "b c");
  EXPECT_EQ(parsed.request.token, "secret");
}

TEST(Http, WaitsForTheEndOfTheHeader) {
  std::string text = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  for (size_t i = 0; i < text.size(); i++) EXPECT_EQ(parse(text.substr(0, i)).state, State::incomplete) << i;
  EXPECT_EQ(parse(text).state, State::complete);
}

TEST(Http, RefusesWhatIsNoRequest) {
  EXPECT_EQ(parse("GET\r\n\r\n").error, 400);
  EXPECT_EQ(parse("GET / FTP/1.1\r\n\r\n").error, 400);
  EXPECT_EQ(parse("GET x HTTP/1.1\r\n\r\n").error, 400);
  EXPECT_EQ(parse("GET /%g0 HTTP/1.1\r\n\r\n").error, 400);
  EXPECT_EQ(parse("GET /% HTTP/1.1\r\n\r\n").error, 400);
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nno colon\r\n\r\n").error, 400);
  EXPECT_EQ(parse("DELETE / HTTP/1.1\r\n\r\n").error, 405);
  EXPECT_EQ(parse(std::string(kLongestRequest, 'x')).error, 431);
}

TEST(Http, ComparesTokens) {
  EXPECT_TRUE(equal_tokens("abc", "abc"));
  EXPECT_FALSE(equal_tokens("abc", "abd"));
  EXPECT_FALSE(equal_tokens("abc", "ab"));
  EXPECT_FALSE(equal_tokens("abcabc", "abc"));
  EXPECT_FALSE(equal_tokens("", "abc"));
  EXPECT_FALSE(equal_tokens("abc", ""));
  EXPECT_NE(make_token(), make_token());
  EXPECT_EQ(make_token().size(), 32u);
}

TEST(Http, AReplyAllowsNothingFromOutside) {
  std::string text = reply_text({.body = "x"});
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(text.find("\r\nContent-Length: 1\r\n"), std::string::npos);
  EXPECT_NE(text.find("default-src 'none'"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\n\r\nx"));
}

}  // namespace
}  // namespace hvd::launcher
