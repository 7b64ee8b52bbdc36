// Adasum: adaptive summation, for any number of ranks.
//
// The rule for two vectors is  a' = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b,  applied in a binary tree by distance
// doubling: the group of rank i absorbs the group of rank i + distance, if there is one. Every vector in the tree is a
// weighted sum of the ranks' inputs, and the rule needs only dot products of such sums. So the ranks
//  1. divide the tensor and compute the dot products of all pairs of inputs, in float64,
//  2. each evaluate the tree on that small matrix, which gives a weight for every rank's input,
//  3. divide the tensor again and add up the weighted inputs.
#include "collectives/adasum.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/host_collectives.h"

namespace hvd {

std::vector<double> adasum_weights(const std::vector<double>& dots, size_t ranks) {
  std::vector<double> weights(ranks, 1.0);
  // dot product of the weighted sums of the groups [a, a + distance) and [b, b + distance)
  auto group_dot = [&](size_t a, size_t b, size_t distance) {
    double sum = 0;
    for (size_t i = a; i < std::min(a + distance, ranks); i++) {
      for (size_t j = b; j < std::min(b + distance, ranks); j++) sum += weights[i] * weights[j] * dots[i * ranks + j];
    }
    return sum;
  };
  const double tiny = std::sqrt(std::numeric_limits<double>::min());
  for (size_t distance = 1; distance < ranks; distance *= 2) {
    for (size_t a = 0; a + distance < ranks; a += 2 * distance) {
      size_t b = a + distance;
      double both = group_dot(a, b, distance), first = group_dot(a, a, distance), second = group_dot(b, b, distance);
      double of_a = first < tiny ? 1.0 : 1.0 - both / (2 * first);
      double of_b = second < tiny ? 1.0 : 1.0 - both / (2 * second);
      for (size_t i = a; i < b; i++) weights[i] *= of_a;
      for (size_t i = b; i < std::min(b + distance, ranks); i++) weights[i] *= of_b;
    }
  }
  return weights;
}

// Step 1. A rank computes the products of all pairs on its parts of the chunks; then the ranks add them up.
Result<std::vector<double>> HostCollectives::dot_products(const std::byte* in, size_t count, DType dtype) {
  size_t ranks = static_cast<size_t>(size()), width = size_of(dtype), total = count * width;
  Segments data(const_cast<std::byte*>(in), total);
  size_t chunk = channel_.shape().chunk;
  channel_.cut_chunks(chunk);
  uint64_t first = channel_.first_chunk(), chunks = (total + chunk - 1) / chunk;
  std::vector<double> dots(ranks * ranks, 0.0);
  for (uint64_t k = 0; k < chunks; k++) {
    if (Status status = channel_.wait_chunk_free(first + k); !status.ok()) return status;
    size_t begin = k * chunk, length = std::min(chunk, total - begin);
    stage(data, begin, begin + length, channel_.in(self(), first + k), nullptr);
    channel_.post_in(first + k);
    Range part = part_of(length, self());
    for (int32_t p = 0; p < size(); p++) {
      if (Status status = channel_.await_in(p, first + k); !status.ok()) return status;
      sources_[static_cast<size_t>(p)] = channel_.in(p, first + k) + part.begin;
    }
    for (size_t a = 0; a < ranks; a++) {
      for (size_t b = a; b < ranks; b++) {
        dots[a * ranks + b] += dot(dtype, sources_[a], sources_[b], (part.end - part.begin) / width);
      }
    }
    channel_.post_out(first + k);
  }
  channel_.finish_chunks(chunks);
  for (size_t a = 0; a < ranks; a++) {
    for (size_t b = 0; b < a; b++) dots[a * ranks + b] = dots[b * ranks + a];
  }
  Segments all(reinterpret_cast<std::byte*>(dots.data()), dots.size() * sizeof(double));
  if (Status status = allreduce(all, all, {.dtype = DType::f64}); !status.ok()) return status;
  return dots;
}

Status HostCollectives::adasum(const std::byte* in, std::byte* out, size_t count, DType dtype, double prescale,
                               double factor) {
  auto dots = dot_products(in, count, dtype);
  if (!dots.ok()) return dots.status();
  std::vector<double> weights = adasum_weights(*dots, static_cast<size_t>(size()));
  size_t width = size_of(dtype), total = count * width, chunk = channel_.shape().chunk;
  Segments data(const_cast<std::byte*>(in), total);
  Segments result(out, total);
  // Adasum is homogeneous: a common factor can be applied to the weights
  for (double& weight : weights) weight *= prescale * factor;

  channel_.cut_chunks(chunk);
  uint64_t first = channel_.first_chunk(), chunks = (total + chunk - 1) / chunk;
  for (uint64_t k = 0; k < chunks; k++) {
    if (Status status = channel_.wait_chunk_free(first + k); !status.ok()) return status;
    size_t begin = k * chunk, length = std::min(chunk, total - begin);
    stage(data, begin, begin + length, channel_.in(self(), first + k), nullptr);
    channel_.post_in(first + k);
    Range part = part_of(length, self());
    for (int32_t p = 0; p < size(); p++) {
      if (Status status = channel_.await_in(p, first + k); !status.ok()) return status;
      sources_[static_cast<size_t>(p)] = channel_.in(p, first + k) + part.begin;
    }
    weighted_sum(dtype, channel_.out(self(), first + k) + part.begin, sources_, weights,
                 (part.end - part.begin) / width);
    channel_.post_out(first + k);
    for (int32_t p = 0; p < size(); p++) {
      Range theirs = part_of(length, p);
      if (Status status = channel_.await_out(p, first + k); !status.ok()) return status;
      result.write(begin + theirs.begin, begin + theirs.end, channel_.out(p, first + k) + theirs.begin);
    }
  }
  channel_.finish_chunks(chunks);
  return {};
}

}  // namespace hvd
