// What the shells need to complete a horovodrun command line, made from the option table. Thread rule: pure function.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

std::string completion(std::string_view shell);  // bash, zsh or fish

}  // namespace hvd
