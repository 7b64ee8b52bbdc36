#include "engine/silent_rank.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

TEST(SilentRank, IsReadFromWhatTheTransportAndTheLinksSay) {
  EXPECT_EQ(silent_rank({Code::peer_lost, "rank 13 (hostb, pid 4711) is lost: silent for 5.0 s"}), 13);
  EXPECT_EQ(silent_rank({Code::peer_lost, "rank 1 (a, pid 2) lost rank 4 (hostb, pid 4711): silent for 5.2 s"}), 4);
}

TEST(SilentRank, IsNobodyWhereProcessesEnded) {
  EXPECT_EQ(silent_rank({}), std::nullopt);
  EXPECT_EQ(silent_rank({Code::peer_lost, "rank 1 (a, pid 2) is gone: its process ended"}), std::nullopt);
  EXPECT_EQ(silent_rank({Code::peer_lost, "somebody was silent for 5 s"}), std::nullopt);
  EXPECT_EQ(silent_rank({Code::unknown, "rank 1 was silent for 5 s"}), std::nullopt);
}

}  // namespace
}  // namespace hvd
