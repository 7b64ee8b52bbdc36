// Streams between ranks of different hosts, over sockets of this process.
#include "transport/mesh.h"

#include <sys/socket.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "support/ranks.h"

namespace hvd {
namespace {

TEST(MeshTest, BytesOfAPairArriveInOrderWhateverTheSizes) {
  constexpr int32_t kHosts[] = {1, 1};
  test::run_hosts(kHosts, test::small_settings(), [](Transport& transport, int32_t rank) {
    Mesh& mesh = *transport.mesh();
    int32_t peer = 1 - rank;
    std::mt19937 random(7);
    std::vector<size_t> sizes;
    for (int i = 0; i < 50; i++) sizes.push_back(random() % (i % 10 == 0 ? 300'000 : 500));
    size_t total = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
    Bytes out(total), in(total);
    for (size_t i = 0; i < total; i++) out[i] = static_cast<std::byte>((i * 31 + static_cast<size_t>(rank)) >> 3);
    Mesh::Ticket sent, received;
    size_t at = 0;
    for (size_t size : sizes) {
      sent = mesh.send(peer, ByteView(out).subspan(at, size));
      at += size;
    }
    at = 0;
    std::reverse(sizes.begin(), sizes.end());  // the sizes of sends and receives need not match
    for (size_t size : sizes) {
      received = mesh.receive(peer, std::span(in).subspan(at, size));
      at += size;
    }
    ASSERT_TRUE(transport.wait(sent, "test").ok());
    ASSERT_TRUE(transport.wait(received, "test").ok());
    for (size_t i = 0; i < total; i++) {
      ASSERT_EQ(in[i], static_cast<std::byte>((i * 31 + static_cast<size_t>(peer)) >> 3)) << i;
    }
    EXPECT_FALSE(mesh.is_busy());
  });
}

TEST(MeshTest, WaitFailsWhenThePeerEnds) {
  constexpr int32_t kHosts[] = {1, 1};
  test::run_hosts(kHosts, test::small_settings(), [](Transport& transport, int32_t rank) {
    if (rank == 1) return;
    std::byte byte{};
    Mesh::Ticket ticket = transport.mesh()->receive(1, {&byte, 1});
    Status status = transport.wait(ticket, "test");
    EXPECT_EQ(status.code(), Code::peer_lost);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  });
}

}  // namespace
}  // namespace hvd
