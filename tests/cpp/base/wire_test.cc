#include "base/wire.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>

namespace hvd {
namespace {

enum class Colour : uint8_t { red, green, blue };

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

constexpr uint64_t kWords[] = {0, 1, 127, 128, 16383, 16384, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX};
constexpr int64_t kSignedWords[] = {0, -1, 1, -64, 64, INT32_MIN, INT64_MAX, INT64_MIN};

TEST(Wire, EverythingEncodedIsDecodedAlike) {
  Bytes bytes;
  Encoder out(bytes);
  for (uint64_t word : kWords) {
    out.varint(word);
    out.fixed64(word);
  }
  for (int64_t word : kSignedWords) out.signed_varint(word);
  out.f64(-0.0);
  out.f64(std::numeric_limits<double>::quiet_NaN());
  out.text(std::string("a\0b", 3));
  out.text("");
  out.u8(static_cast<uint8_t>(Colour::blue));

  Decoder in(bytes);
  for (uint64_t word : kWords) {
    EXPECT_EQ(in.varint(), word);
    EXPECT_EQ(in.fixed64(), word);
  }
  for (int64_t word : kSignedWords) EXPECT_EQ(in.signed_varint(), word);
  EXPECT_TRUE(std::signbit(in.f64()));
  EXPECT_TRUE(std::isnan(in.f64()));
  EXPECT_EQ(in.text(), std::string("a\0b", 3));
  EXPECT_EQ(in.text(), "");
  EXPECT_EQ(in.one_of(Colour::blue), Colour::blue);
  EXPECT_TRUE(in.ok());
  EXPECT_TRUE(in.at_end());
}

TEST(Wire, SmallNumbersTakeOneByteAndWordsAreLittleEndian) {
  Bytes bytes;
  Encoder out(bytes);
  out.varint(127);
  out.signed_varint(-64);
  out.fixed64(0x0102);
  EXPECT_EQ(bytes, bytes_of({127, 127, 2, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(Wire, EveryTruncationIsABadReadOfZeroValues) {
  Bytes bytes;
  Encoder out(bytes);
  out.varint(UINT64_MAX);
  out.fixed64(UINT64_MAX);
  out.text("name");
  for (size_t length = 0; length < bytes.size(); length++) {
    Decoder in(ByteView(bytes).first(length));
    uint64_t word = in.varint();
    uint64_t fixed = in.fixed64();
    std::string_view text = in.text();
    EXPECT_FALSE(in.ok()) << length;
    EXPECT_TRUE(word == UINT64_MAX || word == 0) << length;
    EXPECT_TRUE(fixed == UINT64_MAX || fixed == 0) << length;
    EXPECT_EQ(text, "") << length;
    EXPECT_TRUE(in.at_end());
  }
}

TEST(Wire, AfterABadReadEverythingIsZero) {
  Bytes bytes = bytes_of({5, 'a', 1, 2, 3});  // a text of five bytes in which four are left
  Decoder in(bytes);
  EXPECT_EQ(in.text(), "");
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.u8(), 0);
  EXPECT_EQ(in.varint(), 0u);
  EXPECT_EQ(in.signed_varint(), 0);
  EXPECT_EQ(in.f64(), 0.0);
  EXPECT_EQ(in.count(), 0u);
  EXPECT_EQ(in.one_of(Colour::blue), Colour::red);
  EXPECT_TRUE(in.bytes(0).empty());
}

TEST(Wire, AVarintOfMoreThan64BitsIsABadRead) {
  Bytes largest = bytes_of({255, 255, 255, 255, 255, 255, 255, 255, 255, 1});
  Decoder fits(largest);
  EXPECT_EQ(fits.varint(), UINT64_MAX);
  EXPECT_TRUE(fits.ok());
  Bytes larger = bytes_of({255, 255, 255, 255, 255, 255, 255, 255, 255, 2});
  Decoder too_large(larger);
  EXPECT_EQ(too_large.varint(), 0u);
  EXPECT_FALSE(too_large.ok());
  Bytes endless(11, std::byte{0x80});
  Decoder too_long(endless);
  EXPECT_EQ(too_long.varint(), 0u);
  EXPECT_FALSE(too_long.ok());
}

TEST(Wire, AListLongerThanTheBytesLeftIsABadRead) {
  Bytes bytes = bytes_of({2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  Decoder fits(bytes);
  EXPECT_EQ(fits.count(8), 2u);
  EXPECT_TRUE(fits.ok());
  Decoder too_long(bytes);
  EXPECT_EQ(too_long.count(9), 0u);
  EXPECT_FALSE(too_long.ok());
}

TEST(Wire, AnEnumBeyondItsLastValueIsABadRead) {
  Bytes bytes = bytes_of({2, 3});
  Decoder in(bytes);
  EXPECT_EQ(in.one_of(Colour::blue), Colour::blue);
  EXPECT_EQ(in.one_of(Colour::blue), Colour::red);
  EXPECT_FALSE(in.ok());
}

// For the sanitizers: no byte string makes the decoder read outside it, loop, or return data that it does not have.
TEST(Wire, AnyBytesAreSafeToDecode) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; round++) {
    Bytes bytes(random() % 40);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4 == 0 ? 255 : random() % 256);
    Decoder in(bytes);
    size_t left = in.left();
    while (in.ok() && !in.at_end()) {
      switch (random() % 7) {
        case 0: in.u8(); break;
        case 1: in.varint(); break;
        case 2: in.signed_varint(); break;
        case 3: in.f64(); break;
        case 4: EXPECT_LE(in.text().size(), bytes.size()); break;
        case 5: EXPECT_LE(in.count(1 + random() % 9), bytes.size()); break;
        case 6: EXPECT_LE(in.one_of(Colour::blue), Colour::blue); break;
      }
      ASSERT_LT(in.left(), left);
      left = in.left();
    }
  }
}

}  // namespace
}  // namespace hvd
