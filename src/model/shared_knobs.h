// Knobs that decide how data are laid out, cut or exchanged have to be the same on all ranks that take part. Every rank
// brings their values to the meeting, where they are compared: ranks that go on with different values would read each
// other's data at wrong places. Thread rule: pure functions.
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

// `scope`: those that count between the ranks of a host, which are all of them, or those that count between hosts too.
std::vector<SharedKnob> shared_knobs(const Config& config, Scope scope);

struct KnobsOf {
  std::vector<int32_t> ranks;  // which have these values
  std::vector<SharedKnob> knobs;
};
// Not ok: names every knob that differs, its values and the ranks that have them.
Status compare_knobs(const std::vector<KnobsOf>& all, Scope scope);

void encode(Encoder& out, const std::vector<SharedKnob>& knobs);
std::vector<SharedKnob> decode_shared_knobs(Decoder& in);

}  // namespace hvd
