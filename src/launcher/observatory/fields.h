// Reads fields of JSON that may be anything: what is missing, or of another type, is empty. And writes JSON.
// Thread rule: pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace hvd::launcher {

inline const nlohmann::json& field(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNone;
  if (!object.is_object()) return kNone;
  auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

inline std::string text_of(const nlohmann::json& object, const char* name, const char* otherwise = "") {
  const nlohmann::json& value = field(object, name);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

inline double number_of(const nlohmann::json& object, const char* name) {
  const nlohmann::json& value = field(object, name);
  return value.is_number() ? value.get<double>() : 0;
}

inline int64_t whole_of(const nlohmann::json& object, const char* name, int64_t otherwise = 0) {
  const nlohmann::json& value = field(object, name);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

// Of a worker, as Crew::document() makes it; -1: it is no rank.
inline int64_t rank_of(const nlohmann::json& worker) { return whole_of(field(worker, "metrics"), "rank", -1); }

// Seconds since 1970.
inline double wall_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

inline std::string dumped(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hvd::launcher
