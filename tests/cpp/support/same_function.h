// Whether two declarations of a function are the same to a caller of it: kinds and sizes of all parameters and the
// result.
#pragma once

#include <type_traits>

namespace testing_support {

// What a parameter is in the ABI: pointers are alike, and enums are ints.
template <typename T>
constexpr bool kPointer = std::is_pointer_v<T> || std::is_array_v<T>;

template <typename Ours, typename Real>
constexpr bool same_parameter() {
  if (kPointer<Ours> || kPointer<Real>) return kPointer<Ours> && kPointer<Real>;
  return sizeof(Ours) == sizeof(Real) && std::is_class_v<Ours> == std::is_class_v<Real>;
}

template <typename Ours, typename Real>
struct SameFunction : std::false_type {};
template <typename R, typename... Ours, typename S, typename... Real>
requires(sizeof...(Ours) == sizeof...(Real)) struct SameFunction<R(Ours...), S(Real...)>
    : std::bool_constant<same_parameter<R, S>() && (same_parameter<Ours, Real>() && ...)> {
};

}  // namespace testing_support
