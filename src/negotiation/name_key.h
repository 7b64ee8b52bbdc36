// The key of a negotiation: a name inside a process set. Maps with this key are searched without building a string.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hvd {

struct NameView {
  int32_t process_set;
  std::string_view name;

  bool operator==(const NameView&) const = default;
};

struct NameKey {
  int32_t process_set;
  std::string name;

  explicit NameKey(NameView view) : process_set(view.process_set), name(view.name) {}
  NameView view() const { return {process_set, name}; }
};

struct NameHash {
  using is_transparent = void;
  size_t operator()(NameView key) const {
    return std::hash<std::string_view>()(key.name) ^ (static_cast<size_t>(key.process_set) * 0x9e3779b97f4a7c15u);
  }
  size_t operator()(const NameKey& key) const { return (*this)(key.view()); }
};

struct NameEqual {
  using is_transparent = void;
  bool operator()(const NameKey& a, const NameKey& b) const { return a.view() == b.view(); }
  bool operator()(const NameKey& a, NameView b) const { return a.view() == b; }
  bool operator()(NameView a, const NameKey& b) const { return a == b.view(); }
};

template <class Value>
using NameMap = std::unordered_map<NameKey, Value, NameHash, NameEqual>;

}  // namespace hvd
