#include "net/key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using testing::HasSubstr;
using testing::Not;

ByteView view(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Key, HmacIsTheStandardOne) {  // RFC 4231, test case 1
  auto key = Key::from_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b");
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(to_hex(key->prove(view("Hi There"))), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

TEST(Key, RandomKeysAndNoncesDiffer) {
  auto a = Key::random(), b = Key::random();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->hex().size(), 64u);
  EXPECT_NE(a->hex(), b->hex());
  EXPECT_NE(*random_nonce(), *random_nonce());
}

TEST(Key, SurvivesItsHexadecimalText) {
  auto key = Key::random();
  auto copy = Key::from_hex(key->hex());
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(copy->confirms(key->prove(view("message")), view("message")));
}

TEST(Key, OnlyTheSameKeyAndMessageAreConfirmed) {
  auto key = Key::random(), other = Key::random();
  Proof proof = key->prove(view("message"));
  EXPECT_TRUE(key->confirms(proof, view("message")));
  EXPECT_FALSE(key->confirms(proof, view("messagE")));
  EXPECT_FALSE(other->confirms(proof, view("message")));
  EXPECT_FALSE(key->confirms(ByteView(proof).first(31), view("message")));
  proof[31] ^= std::byte{1};
  EXPECT_FALSE(key->confirms(proof, view("message")));
}

TEST(Key, ABadTextIsRefusedAndNotRepeated) {
  for (const char* text : {"", "00ff", "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0", "zz0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"}) {
    auto key = Key::from_hex(text);
    ASSERT_FALSE(key.ok()) << text;
    EXPECT_EQ(key.status().code(), Code::invalid_argument);
    if (*text == '\0') continue;
    EXPECT_THAT(std::string(key.status().message()), Not(HasSubstr(text)));
  }
}

}  // namespace
}  // namespace hvd
