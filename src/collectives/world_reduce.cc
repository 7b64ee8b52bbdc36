// Reducescatter between hosts. Every part is reduced inside each host by the owner's counterpart there, which sends the
// result to the owner; the owner adds the results of the hosts, in their order. A rank handles several parts, so a
// round takes an equal piece of each. Every host sends each part that it does not own once, which is the minimum.
#include <algorithm>

#include "base/round_up.h"
#include "collectives/world_collectives.h"

namespace hvd {

Status WorldCollectives::reducescatter(std::span<const Segments> parts, const Segments& out,
                                       const Reduction& reduction) {
  size_t largest = 0;
  for (const Segments& part : parts) largest = std::max(largest, part.bytes());
  Scatter call{parts, out, reduction, settings_.round / most_handled() / kLine * kLine};
  size_t rounds = (largest + call.room - 1) / call.room;
  for (size_t k = 0; k < rounds + 1; k++) {
    Status status;
    if (k < rounds) status = start_scatter(call, k);
    if (status.ok() && k > 0) status = finish_scatter(call, k - 1);
    if (!status.ok()) return status;
  }
  return {};
}

// Reduces inside the host and sends the results. The pieces are in work(k) in the order of their owners.
Status WorldCollectives::start_scatter(const Scatter& call, size_t k) {
  auto slice = [&](const Segments& part) -> Range {
    return {std::min(part.bytes(), k * call.room), std::min(part.bytes(), (k + 1) * call.room)};
  };
  std::vector<Segments>& handled = lists(parts_, at_.locals().size());
  Traffic& traffic = traffic_[k % 2];
  std::byte* place = work(k);
  mine_.clear();
  for (size_t p = 0; p < call.parts.size(); p++) {
    Range range = slice(call.parts[p]);
    const Placement::Seat& owner = at_.seats[p];
    size_t handler = owner.host == at_.seat.host ? owner.place : owner.place % handled.size();
    call.parts[p].append_to(handled[handler], range.begin, range.end);
    if (handler != at_.seat.place) continue;
    call.parts[p].append_cut(mine_, range.begin, range.end, place);
    place += range.bytes();
  }
  Reduction local{.dtype = call.reduction.dtype, .op = call.reduction.op, .prescale = call.reduction.prescale};
  if (Status status = host_.reducescatter(handled, mine_, local); !status.ok()) return status;

  size_t own = slice(call.out).bytes();
  place = incoming(k);
  for (size_t host = 0; host < at_.hosts.size(); host++) {
    if (host == at_.seat.host) continue;
    traffic.arrived.push_back(links_.receive(counterpart(host), {place, own}));
    place += own;
  }
  place = work(k);
  for (size_t p = 0; p < call.parts.size(); p++) {
    bool is_own = static_cast<int32_t>(p) == at_.position;
    if (!is_own && !handles(at_.seat.place, at_.seats[p])) continue;
    size_t bytes = slice(call.parts[p]).bytes();
    if (!is_own) traffic.sent.push_back(links_.send(at_.ranks[p], {place, bytes}));
    place += bytes;
  }
  links_.progress();
  return {};
}

Status WorldCollectives::finish_scatter(const Scatter& call, size_t k) {
  Traffic& traffic = traffic_[k % 2];
  if (Status status = wait_all(traffic.arrived); !status.ok()) return status;
  size_t begin = std::min(call.out.bytes(), k * call.room), end = std::min(call.out.bytes(), begin + call.room);
  const std::byte* own = work(k);
  for (size_t p = 0; p < static_cast<size_t>(at_.position); p++) {
    if (!handles(at_.seat.place, at_.seats[p])) continue;
    own += std::min(call.parts[p].bytes(), (k + 1) * call.room) - std::min(call.parts[p].bytes(), k * call.room);
  }
  std::vector<const std::byte*> bases, sources(at_.hosts.size());
  const std::byte* place = incoming(k);
  for (size_t host = 0; host < at_.hosts.size(); host++) {
    bases.push_back(host == at_.seat.host ? own : place);
    if (host != at_.seat.host) place += end - begin;
  }
  const Reduction& reduction = call.reduction;
  call.out.visit(begin, end, [&](std::byte* data, size_t bytes, size_t at) {
    for (size_t host = 0; host < bases.size(); host++) sources[host] = bases[host] + at;
    hvd::reduce(reduction.dtype, reduction.op, data, sources, bytes / size_of(reduction.dtype), reduction.factor);
  });
  return wait_all(traffic.sent);
}

}  // namespace hvd
