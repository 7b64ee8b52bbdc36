// The live page, page.html. Thread rule: a constant.
#pragma once

namespace hvd::launcher {

extern const char* const kPage;

}  // namespace hvd::launcher
