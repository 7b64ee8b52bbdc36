// Records what is carried (negotiation/carried.h) and checks that nothing else is taken for it.
#pragma once

#include <cstdlib>

#include "negotiation/carried.h"

namespace hvd {

struct Ear final : CarriedListener {
  void on_carried(const Request& request, ByteView theirs) override {
    if (!can_be_carried(request) || theirs.size() != bytes_of(request)) std::abort();
  }
};

}  // namespace hvd
