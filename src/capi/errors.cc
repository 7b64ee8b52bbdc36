#include "errors.h"

#include <string>

namespace hvd {
namespace {

thread_local std::string error_text;
thread_local Origin error_origin;

}  // namespace

hvd_code report(const Status& status) {
  if (!status.ok()) {
    error_text = status.message();
    error_origin = status.origin();
  }
  return static_cast<hvd_code>(status.code());
}

const char* last_error() { return error_text.c_str(); }
const Origin& last_origin() { return error_origin; }

}  // namespace hvd
