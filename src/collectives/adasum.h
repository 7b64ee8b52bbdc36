// Arithmetic of Adasum that is used inside a host and between hosts; see adasum.cc. Thread rule: pure function.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd {

// The weight of every input in the result, from the matrix of the inputs' dot products.
std::vector<double> adasum_weights(const std::vector<double>& dots, size_t inputs);

}  // namespace hvd
