#include "launcher/agents/key_agreement.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

KeyPair new_pair() { return std::move(*KeyPair::make()); }

TEST(KeyAgreement, BothSidesFindTheSameKeyAndNobodyElseDoes) {
  KeyPair launcher = new_pair(), agent = new_pair(), stranger = new_pair();
  std::string key = launcher.agree(Side::launcher, agent.public_key()).value().hex();
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(agent.agree(Side::agent, launcher.public_key()).value().hex(), key);
  EXPECT_NE(stranger.agree(Side::agent, launcher.public_key()).value().hex(), key);
  EXPECT_NE(stranger.agree(Side::launcher, agent.public_key()).value().hex(), key);
}

TEST(KeyAgreement, WhoIsTheLauncherIsPartOfTheKey) {
  KeyPair one = new_pair(), other = new_pair();
  EXPECT_NE(one.agree(Side::launcher, other.public_key()).value().hex(),
            other.agree(Side::launcher, one.public_key()).value().hex());
}

TEST(KeyAgreement, EveryPairIsNew) { EXPECT_NE(new_pair().public_key(), new_pair().public_key()); }

// With these (RFC 7748, section 6.1) the secret would be zero for every key pair, and so no secret.
TEST(KeyAgreement, PointsThatMakeTheSecretKnownAreRefused) {
  KeyPair pair = new_pair();
  PublicKey zero{}, one{};
  one[0] = std::byte{1};
  for (const PublicKey& point : {zero, one}) EXPECT_FALSE(pair.agree(Side::launcher, point).ok());
}

}  // namespace
}  // namespace hvd
