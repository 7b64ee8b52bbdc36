#include <gtest/gtest.h>

#include "launcher/doctor/facts.h"
#include "launcher/doctor_exams.h"

namespace hvd::launcher {
namespace {

TEST(DoctorFacts, ArriveAsTheyWereSent) {
  Facts sent = healthy_facts("1", {"2", "3"});
  sent.launcher_error = "a \"quoted\"\nreason";
  sent.resources.quota = 1.5;
  sent.resources.shm.reset();
  sent.allreduce = Trial{.seconds = 0, .error = "why not", .was_skipped = true};
  auto received = facts_from(to_json(sent).dump());
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_EQ(to_json(*received), to_json(sent));
  EXPECT_EQ(received->launcher_error, sent.launcher_error);
  EXPECT_EQ(received->resources.quota, 1.5);
  EXPECT_EQ(received->resources.shm, std::nullopt);
  ASSERT_EQ(received->attempts.size(), 4U);
  EXPECT_EQ(received->attempts[0].time, 0.001);
  EXPECT_TRUE(received->attempts[1].is_own && received->attempts[1].address.is_virtual);
  EXPECT_TRUE(received->allreduce->was_skipped);
}

TEST(DoctorFacts, WhatIsNotKnownYetStaysUnknown) {
  auto received = facts_from(to_json(Facts()).dump());
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(received->clock || received->allreduce || received->resources.open_files);
}

// Another process wrote it: whatever it is, it is an error and no crash.
TEST(DoctorFacts, EveryFieldIsCheckedWhenItArrives) {
  const Json whole = to_json(healthy_facts("1", {"2"}));
  for (const auto& [name, value] : whole.items()) {
    Json without = whole;
    without.erase(name);
    EXPECT_FALSE(facts_from(without.dump()).ok()) << name;
    Json other = whole;
    other[name] = 7;
    EXPECT_FALSE(facts_from(other.dump()).ok()) << name;
  }
  for (const char* text : {"", "{", "[]", "null", "\"x\"", "Welcome to host a"})
    EXPECT_FALSE(facts_from(text).ok()) << text;
}

TEST(DoctorFacts, ABrokenAddressIsAnError) {
  Json address = to_json(Address{.ip = "10.0.0.1", .port = 1, .interface = "eth0", .is_virtual = false});
  EXPECT_TRUE(address_from(address).ok());
  address["interface"] = nullptr;
  EXPECT_FALSE(address_from(address).ok());
  EXPECT_FALSE(address_from(Json("10.0.0.1")).ok());
}

}  // namespace
}  // namespace hvd::launcher
