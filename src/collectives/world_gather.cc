// The collectives between hosts that only move bytes: allgather, broadcast, alltoall. Bytes go directly between the
// caller's memory and the streams.
#include <algorithm>
#include <bit>

#include "collectives/world_collectives.h"

namespace hvd {

// A rank sends its block once to each other host, to its counterpart there. The counterpart forwards it through shared
// memory together with its own block, round by round while the rest is still arriving.
Status WorldCollectives::allgather(const Segments& mine, std::span<const Segments> theirs) {
  size_t hosts = at_.hosts.size(), largest = 0, place = at_.seat.place;
  for (const Segments& block : theirs) largest = std::max(largest, block.bytes());
  size_t rounds = (largest + settings_.round - 1) / settings_.round;
  auto slice = [&](const Segments& block, size_t k) -> Range {
    return {std::min(block.bytes(), k * settings_.round), std::min(block.bytes(), (k + 1) * settings_.round)};
  };
  bool flat = settings_.flat_allgather;
  auto comes_here = [&](const Placement::Seat& from) {
    return flat ? from.host != at_.seat.host : handles(place, from);
  };
  Traffic& traffic = traffic_[0];
  std::vector<size_t> arrivals{0};  // tickets up to the end of each round
  for (size_t k = 0; k < rounds; k++) {
    for (size_t p = 0; p < theirs.size(); p++) {
      if (comes_here(at_.seats[p])) receive(traffic, at_.ranks[p], theirs[p], slice(theirs[p], k));
    }
    arrivals.push_back(traffic.arrived.size());
  }
  for (size_t d = 1; d < hosts; d++) {
    size_t host = (at_.seat.host + d) % hosts;
    if (!flat) send(traffic, counterpart(host), mine, {0, mine.bytes()});
    for (size_t i = 0; flat && i < at_.hosts[host].size(); i++) {
      send(traffic, at_.rank_at(host, i), mine, {0, mine.bytes()});
    }
  }
  links_.progress();
  copy_over(mine, theirs[static_cast<size_t>(at_.position)]);
  for (size_t k = 0; k < rounds; k++) {
    for (size_t i = arrivals[k]; i < arrivals[k + 1]; i++) {
      if (Status status = links_.wait(traffic.arrived[i]); !status.ok()) return status;
    }
    if (alone()) continue;
    std::vector<Segments>& blocks = lists(theirs_, at_.locals().size());
    for (size_t i = 0; i < blocks.size(); i++) {
      for (size_t p = 0; p < theirs.size(); p++) {
        bool own = static_cast<int32_t>(p) == at_.locals()[i];
        if (!own && (flat || !handles(i, at_.seats[p]))) continue;
        Range range = slice(theirs[p], k);
        theirs[p].append_to(blocks[i], range.begin, range.end);
      }
    }
    if (Status status = host_.allgather(blocks[place], blocks); !status.ok()) return status;
  }
  traffic.arrived.clear();
  return wait_all(traffic.sent);
}

// ---- broadcast ----

Status WorldCollectives::broadcast(int32_t root, const Segments& data) {
  if (data.bytes() == 0) return {};
  if (data.bytes() <= settings_.cross.segment) return broadcast_small(root, data);
  return broadcast_large(root, data);
}

// A binomial tree over the hosts, numbered from the root's host, then shared memory.
Status WorldCollectives::broadcast_small(int32_t root, const Segments& data) {
  const Placement::Seat& origin = at_.seats[static_cast<size_t>(root)];
  size_t hosts = at_.hosts.size(), number = (at_.seat.host + hosts - origin.host) % hosts;
  size_t entry = number == 0 ? origin.place : 0;  // the rank on this host that receives the bytes
  auto rank_of = [&](size_t other) {
    return at_.rank_at((origin.host + other) % hosts, other == 0 ? origin.place : 0);
  };
  Traffic& traffic = traffic_[0];
  if (at_.seat.place == entry) {
    if (number > 0) {
      receive(traffic, rank_of(number - std::bit_floor(number)), data, {0, data.bytes()});
      if (Status status = wait_all(traffic.arrived); !status.ok()) return status;
    }
    for (size_t distance = number == 0 ? 1 : 2 * std::bit_floor(number); number + distance < hosts; distance *= 2) {
      send(traffic, rank_of(number + distance), data, {0, data.bytes()});
    }
    links_.progress();
  }
  if (!alone()) {
    if (Status status = host_.broadcast(static_cast<int32_t>(entry), data); !status.ok()) return status;
  }
  return wait_all(traffic.sent);
}

// A chain of hosts, numbered from the root's host. Each lane carries its share of every round, segment by segment; the
// hosts combine the shares in shared memory.
Status WorldCollectives::broadcast_large(int32_t root, const Segments& data) {
  const Placement::Seat& origin = at_.seats[static_cast<size_t>(root)];
  size_t hosts = at_.hosts.size(), number = (at_.seat.host + hosts - origin.host) % hosts;
  Chain chain{.data = data, .lanes = lanes_for(data.bytes()), .drives = false, .next = -1};
  chain.drives = at_.seat.place < chain.lanes;
  if (chain.drives && number + 1 < hosts) chain.next = lane_.ranks[(at_.seat.host + 1) % hosts];
  Traffic& traffic = traffic_[0];
  if (number > 0 && chain.drives) {
    int32_t before = lane_.ranks[(at_.seat.host + hosts - 1) % hosts];
    for_rounds(chain, [&](Range round) {
      for_segments(share(round, at_.seat.place, chain.lanes),
                   [&](Range segment) { receive(traffic, before, data, segment); });
    });
  }
  Status status;
  size_t arrived = 0;
  for_rounds(chain, [&](Range round) {
    if (!status.ok()) return;
    status = number == 0 ? feed_chain(chain, round, root) : pass_on(chain, round, arrived);
  });
  if (!status.ok()) return status;
  traffic.arrived.clear();
  return wait_all(traffic.sent);
}

template <class Visit>
void WorldCollectives::for_rounds(const Chain& chain, Visit&& visit) const {
  size_t total = chain.data.bytes(), each = chain.lanes * settings_.round;
  for (size_t begin = 0; begin < total; begin += each) visit(Range{begin, std::min(total, begin + each)});
}

template <class Visit>
void WorldCollectives::for_segments(Range range, Visit&& visit) const {
  size_t each = settings_.cross.segment;
  for (size_t begin = range.begin; begin < range.end; begin += each) {
    visit(Range{begin, std::min(range.end, begin + each)});
  }
}

// The root's host: all ranks get the round through shared memory and send their shares to the next host.
Status WorldCollectives::feed_chain(const Chain& chain, Range round, int32_t root) {
  auto send_share = [&] {
    if (chain.next >= 0) send(traffic_[0], chain.next, chain.data, share(round, at_.seat.place, chain.lanes));
    links_.progress();
  };
  bool is_root = at_.position == root;
  if (is_root) send_share();  // it need not wait for the others
  if (!alone()) {
    mine_.clear();
    chain.data.append_to(mine_, round.begin, round.end);
    size_t place = at_.seats[static_cast<size_t>(root)].place;
    if (Status status = host_.broadcast(static_cast<int32_t>(place), mine_); !status.ok()) return status;
  }
  if (!is_root) send_share();
  return {};
}

// The other hosts: forward what has arrived, then share it. `arrived` counts the tickets already waited for.
Status WorldCollectives::pass_on(const Chain& chain, Range round, size_t& arrived) {
  Status status;
  Traffic& traffic = traffic_[0];
  Range mine = chain.drives ? share(round, at_.seat.place, chain.lanes) : Range{};
  for_segments(mine, [&](Range segment) {
    chain.data.visit(segment.begin, segment.end, [&](const std::byte*, size_t, size_t) {
      if (status.ok()) status = links_.wait(traffic.arrived[arrived++]);
    });
    if (!status.ok() || chain.next < 0) return;
    send(traffic, chain.next, chain.data, segment);
    links_.progress();
  });
  if (!status.ok() || alone()) return status;
  std::vector<Segments>& shares = lists(theirs_, at_.locals().size());
  for (size_t lane = 0; lane < chain.lanes; lane++) {
    Range range = share(round, lane, chain.lanes);
    chain.data.append_to(shares[lane], range.begin, range.end);
  }
  return host_.allgather(shares[at_.seat.place], shares);
}

// ---- alltoall ----

// Directly between ranks of different hosts, through shared memory inside a host, both at the same time.
Status WorldCollectives::alltoall(std::span<const Segments> sent, std::span<const Segments> received, size_t largest) {
  size_t ranks = sent.size(), own = static_cast<size_t>(at_.position);
  Traffic& traffic = traffic_[0];
  for (size_t d = 1; d < ranks; d++) {  // each rank starts with a different peer
    size_t to = (own + d) % ranks, from = (own + ranks - d) % ranks;
    if (at_.seats[from].host != at_.seat.host)
      receive(traffic, at_.ranks[from], received[from], {0, received[from].bytes()});
    if (at_.seats[to].host != at_.seat.host) send(traffic, at_.ranks[to], sent[to], {0, sent[to].bytes()});
  }
  links_.progress();
  if (alone()) {
    copy_over(sent[own], received[own]);
  } else {
    size_t locals = at_.locals().size();
    std::vector<Segments>&out = lists(parts_, locals), &in = lists(theirs_, locals);
    for (size_t i = 0; i < locals; i++) {
      size_t p = static_cast<size_t>(at_.locals()[i]);
      sent[p].append_to(out[i], 0, sent[p].bytes());
      received[p].append_to(in[i], 0, received[p].bytes());
    }
    if (Status status = host_.alltoall(out, in, largest); !status.ok()) return status;
  }
  if (Status status = wait_all(traffic.arrived); !status.ok()) return status;
  return wait_all(traffic.sent);
}

}  // namespace hvd
