#include "launcher/observatory/dump_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/observatory/top.h"

namespace hvd::launcher {
namespace {

class DumpFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "dumps.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::setenv("TMPDIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TMPDIR");
    std::filesystem::remove_all(folder_);
  }
  std::string private_path() const { return folder_ + "/horovod-" + std::to_string(::geteuid()); }

  std::string folder_;
};

unsigned mode_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

TEST_F(DumpFiles, AreForTheirUserAlone) {
  ::umask(0);
  auto file = new_dump_file("");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(std::filesystem::path(file->path).parent_path(), private_path());
  EXPECT_EQ(mode_of(private_path()), 0700u);
  EXPECT_EQ(mode_of(file->path), 0600u);
  ASSERT_TRUE(write_all(*file, "content").ok());
  std::string content;
  std::ifstream(file->path) >> content;
  EXPECT_EQ(content, "content");
}

TEST_F(DumpFiles, OfOneSecondHaveDifferentNames) {
  std::set<std::string> names;
  for (int i = 0; i < 5; i++) names.insert(new_dump_file(folder_)->path);
  EXPECT_EQ(names.size(), 5u);
}

TEST_F(DumpFiles, AFolderThatOthersCanReadIsRefused) {
  ASSERT_EQ(::mkdir(private_path().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(private_path().c_str(), 0755), 0);
  auto file = new_dump_file("");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("--dump-dir"), std::string::npos);
}

TEST_F(DumpFiles, OnlyTheNewestAreKept) {
  ASSERT_TRUE(new_dump_file("").ok());
  for (int i = 0; i < 30; i++)
    std::ofstream(private_path() + "/dump-1999-" + std::to_string(100 + i) + ".json") << "{}";
  auto file = new_dump_file("");
  ASSERT_TRUE(file.ok());
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(private_path())) count++;
  EXPECT_EQ(count, 20u);
  EXPECT_TRUE(std::filesystem::exists(file->path));
}

TEST_F(DumpFiles, AFolderThatCannotBeIsNamed) {
  std::ofstream(folder_ + "/file") << "x";
  auto file = new_dump_file(folder_ + "/file");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find(folder_ + "/file/dump-"), std::string::npos) << file.status().message();
}

TEST(Top, ShowsAsManyRanksAsFit) {
  nlohmann::json workers = nlohmann::json::array();
  for (int rank = 0; rank < 128; rank++)
    workers.push_back(
        {{"worker", rank}, {"rank", rank}, {"host", "node"}, {"state", "running"}, {"process", "sleeping"}});
  std::string text = top_text({{"pid", 7}, {"ranks", 128}, {"time", 12.0}, {"began", 2.0}, {"workers", workers}}, 60);
  EXPECT_NE(text.find("job 7: 128 ranks, up 10 s\n"), std::string::npos);
  EXPECT_NE(text.find("... and 64 more\n"), std::string::npos);
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    EXPECT_LE(text.find('\n', begin) - begin, 60u);
}

TEST(Top, BearsWhatIsNoStatus) {
  for (const char* text : {"3", "{}", "[]", "{\"workers\": 3}"})
    EXPECT_FALSE(top_text(nlohmann::json::parse(text), 80).empty()) << text;
}

}  // namespace
}  // namespace hvd::launcher
