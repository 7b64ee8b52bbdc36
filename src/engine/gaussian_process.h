// Regression with a Gaussian process: what a noisy function is likely to be where it has not been measured. The tuner
// fits a new one after each sample.
// Thread rule: immutable once built.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>

namespace hvd {

struct Prediction {
  double mean = 0;
  double deviation = 0;
};

// How much above `best` a value drawn from the prediction is on average, counting a value below as nothing.
double expected_improvement(const Prediction& prediction, double best);

class GaussianProcess {
 public:
  // Each column of `points` is a place in the unit cube and `values` has what was measured there. `noise` is the
  // most that is taken for the variance of a measurement, as a share of the variance of `values`.
  GaussianProcess(Eigen::MatrixXd points, const Eigen::VectorXd& values, double noise);

  Prediction at(const Eigen::VectorXd& point) const;

 private:
  struct Model {
    Eigen::VectorXd lengths;  // for each dimension, how far apart two points begin to be unrelated
    double noise = 0;
  };

  double fit(const Model& model);  // returns the logarithm of its likelihood, but for a constant
  double covariance(const Eigen::VectorXd& a, const Eigen::VectorXd& b) const;

  Eigen::MatrixXd points_;
  double mean_, scale_;      // of the values as given
  Eigen::VectorXd values_;   // scaled to mean 0 and variance 1
  Eigen::VectorXd lengths_;  // of the model
  Eigen::LLT<Eigen::MatrixXd> covariances_;
  Eigen::VectorXd weights_;
};

}  // namespace hvd
