// What the corpus generators share.
#pragma once

#include <filesystem>
#include <fstream>

#include "base/wire.h"

namespace hvd {

inline void write_file(const std::filesystem::path& path, ByteView bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void write_connection_corpus(const std::filesystem::path& folder);  // handshake, frames, store
void write_agent_corpus(const std::filesystem::path& folder);
void write_elastic_corpus(const std::filesystem::path& folder);

}  // namespace hvd
