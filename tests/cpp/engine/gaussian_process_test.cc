#include "engine/gaussian_process.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace hvd {
namespace {

Eigen::VectorXd point(double x) { return Eigen::VectorXd::Constant(1, x); }

GaussianProcess learn(double (*function)(double), int count, double noise) {
  Eigen::MatrixXd points(1, count);
  Eigen::VectorXd values(count);
  for (int i = 0; i < count; i++) {
    points(0, i) = i / (count - 1.0);
    values[i] = function(points(0, i));
  }
  return GaussianProcess(points, values, noise);
}

double wave(double x) { return 100 + 5 * std::sin(6 * x); }

TEST(GaussianProcess, GoesThroughExactMeasurementsAndBetweenThem) {
  GaussianProcess process = learn(wave, 8, 0);
  for (int i = 0; i < 8; i++) {
    EXPECT_NEAR(process.at(point(i / 7.0)).mean, wave(i / 7.0), 1e-3);
    EXPECT_LT(process.at(point(i / 7.0)).deviation, 0.05);
  }
  EXPECT_NEAR(process.at(point(0.5)).mean, wave(0.5), 0.3);
}

TEST(GaussianProcess, IsLessSureFartherFromItsMeasurements) {
  GaussianProcess process = learn(wave, 8, 0.1);
  EXPECT_GT(process.at(point(2)).deviation, 2 * process.at(point(0.5)).deviation);
  EXPECT_NEAR(process.at(point(100)).mean, 100, 5);  // without data there, it returns the average
}

TEST(GaussianProcess, SmoothsNoiseAway) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 2);
  Eigen::MatrixXd points(1, 60);
  Eigen::VectorXd values(60);
  for (int i = 0; i < 60; i++) {
    points(0, i) = i / 59.0;
    values[i] = wave(points(0, i)) + noise(random);
  }
  GaussianProcess process(points, values, 0.8);
  for (double x : {0.1, 0.3, 0.5, 0.7, 0.9}) EXPECT_NEAR(process.at(point(x)).mean, wave(x), 1.5) << x;
}

TEST(GaussianProcess, EqualOrRepeatedMeasurementsAreNoProblem) {
  Eigen::MatrixXd points = Eigen::MatrixXd::Constant(4, 3, 0.5);
  GaussianProcess equal(points, Eigen::VectorXd::Constant(3, 7.0), 0);
  EXPECT_NEAR(equal.at(points.col(0)).mean, 7, 1e-6);
  GaussianProcess different(points, Eigen::Vector3d(6, 7, 8), 0);
  EXPECT_NEAR(different.at(points.col(0)).mean, 7, 1e-3);
}

TEST(ExpectedImprovement, WeighsGainAgainstUncertainty) {
  EXPECT_EQ(expected_improvement({.mean = 3, .deviation = 0}, 1), 2);
  EXPECT_EQ(expected_improvement({.mean = 1, .deviation = 0}, 3), 0);
  EXPECT_NEAR(expected_improvement({.mean = 1, .deviation = 1}, 1), 0.398942, 1e-6);
  EXPECT_GT(expected_improvement({.mean = 1, .deviation = 2}, 1), expected_improvement({.mean = 1, .deviation = 1}, 1));
  EXPECT_GT(expected_improvement({.mean = 2, .deviation = 1}, 1), expected_improvement({.mean = 1, .deviation = 1}, 1));
}

}  // namespace
}  // namespace hvd
