#include "engine/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace hvd {
namespace {

// Few and coarse: some twenty measurements do not support more. No value turns a dimension off completely.
constexpr double kLengths[] = {0.25, 0.5, 1, 2};
constexpr double kStartLength = 0.5;
constexpr double kNoiseShares[] = {0.001, 0.01, 0.1, 1};
constexpr double kJitter = 1e-8;  // keeps the covariances invertible if a point is measured twice without noise

}  // namespace

double expected_improvement(const Prediction& prediction, double best) {
  double gain = prediction.mean - best;
  if (prediction.deviation <= 0) return std::max(gain, 0.0);
  double z = gain / prediction.deviation;
  double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  double probability = std::erfc(-z / std::numbers::sqrt2) / 2;
  return gain * probability + prediction.deviation * density;
}

GaussianProcess::GaussianProcess(Eigen::MatrixXd points, const Eigen::VectorXd& values, double noise)
    : points_(std::move(points)), mean_(values.mean()) {
  double deviation = std::sqrt((values.array() - mean_).square().mean());
  scale_ = deviation > 0 ? deviation : 1;
  values_ = (values.array() - mean_) / scale_;

  // The lengths and the noise that maximise the likelihood of the values, optimised one after another.
  Model best{.lengths = Eigen::VectorXd::Constant(points_.rows(), kStartLength), .noise = noise};
  double best_likelihood = fit(best);
  auto try_model = [&](const Model& model) {
    if (double likelihood = fit(model); likelihood > best_likelihood) {
      best_likelihood = likelihood;
      best = model;
    }
  };
  for (int sweep = 0; sweep < 2; sweep++) {
    for (Eigen::Index dimension = 0; dimension < points_.rows(); dimension++) {
      for (double length : kLengths) {
        Model model = best;
        model.lengths[dimension] = length;
        try_model(model);
      }
    }
    for (double share : kNoiseShares) {
      Model model = best;
      model.noise = share * noise;
      try_model(model);
    }
  }
  fit(best);
}

Prediction GaussianProcess::at(const Eigen::VectorXd& point) const {
  Eigen::VectorXd related(points_.cols());
  for (Eigen::Index i = 0; i < points_.cols(); i++) related[i] = covariance(points_.col(i), point);
  double explained = covariances_.matrixL().solve(related).squaredNorm();
  return {.mean = mean_ + scale_ * related.dot(weights_),
          .deviation = scale_ * std::sqrt(std::max(1 - explained, 0.0))};
}

double GaussianProcess::fit(const Model& model) {
  lengths_ = model.lengths;
  Eigen::Index count = points_.cols();
  Eigen::MatrixXd matrix(count, count);
  for (Eigen::Index i = 0; i < count; i++) {
    for (Eigen::Index j = 0; j <= i; j++) matrix(i, j) = matrix(j, i) = covariance(points_.col(i), points_.col(j));
  }
  matrix.diagonal().array() += model.noise + kJitter;
  covariances_.compute(matrix);
  weights_ = covariances_.solve(values_);
  return -values_.dot(weights_) / 2 - covariances_.matrixLLT().diagonal().array().log().sum();
}

// Matern 5/2: smooth, but still allows a distant bump.
double GaussianProcess::covariance(const Eigen::VectorXd& a, const Eigen::VectorXd& b) const {
  double distance = std::sqrt(5.0) * ((a - b).array() / lengths_.array()).matrix().norm();
  return (1 + distance + distance * distance / 3) * std::exp(-distance);
}

}  // namespace hvd
