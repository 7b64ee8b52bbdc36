// Regression with a Gaussian process: estimates a noisy function where it has not been measured. The tuner fits a new
// one after each sample. Thread rule: immutable once built.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>

namespace hvd {

struct Prediction {
  double mean = 0;
  double deviation = 0;
};

// The expected amount by which a value drawn from the prediction exceeds `best`; values below count as zero.
double expected_improvement(const Prediction& prediction, double best);

class GaussianProcess {
 public:
  // Each column of `points` is a point in the unit cube, and `values` has the measurements there. `noise` is the
  // maximum variance of a measurement, as a share of the variance of `values`.
  GaussianProcess(Eigen::MatrixXd points, const Eigen::VectorXd& values, double noise);

  Prediction at(const Eigen::VectorXd& point) const;

 private:
  struct Model {
    Eigen::VectorXd lengths;  // per dimension: the distance at which two points become nearly independent
    double noise = 0;
  };

  double fit(const Model& model);  // returns the log likelihood up to a constant
  double covariance(const Eigen::VectorXd& a, const Eigen::VectorXd& b) const;

  Eigen::MatrixXd points_;
  double mean_, scale_;      // of the values as given
  Eigen::VectorXd values_;   // scaled to mean 0 and variance 1
  Eigen::VectorXd lengths_;  // of the model
  Eigen::LLT<Eigen::MatrixXd> covariances_;
  Eigen::VectorXd weights_;
};

}  // namespace hvd
