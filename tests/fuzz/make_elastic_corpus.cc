#include "fuzz/corpus_file.h"
#include "rendezvous/elastic_messages.h"

namespace hvd {

void write_elastic_corpus(const std::filesystem::path& folder) {
  ElasticMessage messages[] = {
      RankRequest{.last = Generation{3}, .reason = "rank 1 on b is gone", .lost_rank = 1},
      LeaveNotice{.reason = "SIGTERM"},
      RankAssignment{
          .generation = Generation{4}, .rank = 3, .size = 8, .local_rank = 1, .local_size = 2, .cross_size = 4},
      WorldVoid{.generation = Generation{4}, .reason = "rank 2 ended"},
      Dismissal{.reason = "host b has left"},
      JobOver{.reason = "too few slots"},
      HostsChanged{.change = HostsChanged::Change::mixed, .timestamp = 1.7e9}};
  for (const ElasticMessage& message : messages) write_file(folder / std::to_string(message.index()), encode(message));
}

}  // namespace hvd
