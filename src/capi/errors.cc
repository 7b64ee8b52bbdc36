#include "errors.h"

#include <string>

namespace hvd {
namespace {

thread_local std::string error_text;

}  // namespace

hvd_code report(const Status& status) {
  if (!status.ok()) error_text = status.message();
  return static_cast<hvd_code>(status.code());
}

const char* last_error() { return error_text.c_str(); }

}  // namespace hvd
