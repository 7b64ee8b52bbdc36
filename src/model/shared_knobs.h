// Knobs that determine how data are laid out, divided or exchanged must be the same on all ranks concerned. Every rank
// sends their values at the rendezvous, where they are compared: ranks with different values would read each other's
// data at wrong offsets. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "model/config.h"

namespace hvd {

struct SharedKnob {
  std::string name, value;
  bool operator==(const SharedKnob&) const = default;
};

// `scope`: on_host returns all shared knobs, in_world only those that must also agree between hosts.
std::vector<SharedKnob> shared_knobs(const Config& config, Scope scope);

struct KnobsOf {
  std::vector<int32_t> ranks;  // the ranks that have these values
  std::vector<SharedKnob> knobs;
};
// Not ok: names every knob that differs, with its values and their ranks.
Status compare_knobs(const std::vector<KnobsOf>& all, Scope scope);

void encode(Encoder& out, const std::vector<SharedKnob>& knobs);
std::vector<SharedKnob> decode_shared_knobs(Decoder& in);

}  // namespace hvd
