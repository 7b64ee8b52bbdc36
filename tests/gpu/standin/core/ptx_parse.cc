#include <cctype>
#include <cstdlib>
#include <optional>

#include "core/ptx.h"

namespace standin::ptx {
namespace {

struct Failure {
  std::string reason;
};

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$' || c == '%';
}

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  for (size_t i = 0; i < text.size();) {
    if (std::isspace(static_cast<unsigned char>(text[i])) != 0) {
      ++i;
    } else if (text.substr(i, 2) == "//") {
      i = std::min(text.size(), text.find('\n', i));
    } else if (text.substr(i, 2) == "/*") {
      i = std::min(text.size(), text.find("*/", i)) + 2;
    } else if (text[i] == '"') {
      const size_t end = text.find('"', i + 1);
      tokens.emplace_back(text.substr(i, end - i + 1));
      i = end == std::string_view::npos ? text.size() : end + 1;
    } else if (in_word(text[i])) {
      size_t end = i;
      while (end < text.size() && in_word(text[end])) ++end;
      tokens.emplace_back(text.substr(i, end - i));
      i = end;
    } else {
      tokens.emplace_back(1, text[i++]);
    }
  }
  return tokens;
}

std::optional<Type> type_of(std::string_view word) {
  if (word == "pred") return Type{'p', 1};
  if (word.size() < 2 || std::string_view("busf").find(word[0]) == std::string_view::npos) return std::nullopt;
  const std::string bits(word.substr(1));
  if (bits != "8" && bits != "16" && bits != "32" && bits != "64") return std::nullopt;
  return Type{word[0], std::atoi(bits.c_str())};
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokens_of(text)) {}

  std::shared_ptr<Module> module() {
    auto result = std::make_shared<Module>();
    while (!end()) {
      const std::string word = take();
      if (word == ".version") {
        const auto parts = split(take(), '.');
        result->version = std::atoi(parts.at(0).c_str()) * 10 + (parts.size() > 1 ? std::atoi(parts[1].c_str()) : 0);
      } else if (word == ".target" || word == ".address_size") {
        take();
        while (peek() == ",") take(), take();
      } else if (word == ".visible") {
        continue;
      } else if (word == ".entry") {
        auto kernel = entry();
        result->kernels[kernel->name] = kernel;
      } else {
        throw Failure{"unknown directive " + word};
      }
    }
    if (result->version == 0) throw Failure{"no .version"};
    return result;
  }

 private:
  bool end() const { return at_ >= tokens_.size(); }
  const std::string& peek(size_t ahead = 0) const {
    static const std::string nothing;
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead] : nothing;
  }
  std::string take() {
    if (end()) throw Failure{"text ends early"};
    return tokens_[at_++];
  }
  void expect(const std::string& token) {
    const std::string found = take();
    if (found != token) throw Failure{"'" + token + "' expected, not '" + found + "'"};
  }

  std::shared_ptr<Kernel> entry() {
    kernel_ = std::make_shared<Kernel>();
    registers_.clear();
    label_numbers_.clear();
    kernel_->name = take();
    if (peek() == "(") parameters();
    while (peek() != "{") take();  // .maxntid and the like
    take();
    body();
    kernel_->registers = static_cast<int>(registers_.size());
    for (size_t target : kernel_->labels)
      if (target == size_t(-1)) throw Failure{"a label is missing in " + kernel_->name};
    return kernel_;
  }

  void parameters() {
    expect("(");
    while (peek() != ")") {
      expect(".param");
      size_t align = 0, bytes = 0;
      for (std::string word = take();; word = take()) {
        if (word == ".align") {
          align = static_cast<size_t>(std::atoi(take().c_str()));
        } else if (const auto type = type_of(word.substr(1)); word[0] == '.' && type) {
          bytes = static_cast<size_t>(type->bits / 8);
        } else if (word != ".ptr" && word != ".global") {
          add_parameter(word, bytes, align);
          break;
        }
      }
      if (peek() == ",") take();
    }
    take();
  }

  void add_parameter(const std::string& name, size_t bytes, size_t align) {
    if (peek() == "[") {
      take();
      bytes *= static_cast<size_t>(std::atoi(take().c_str()));
      expect("]");
    } else if (align == 0) {
      align = bytes;
    }
    if (align == 0) align = 1;
    const size_t offset = (kernel_->parameter_bytes + align - 1) / align * align;
    kernel_->parameter_offsets[name] = offset;
    kernel_->parameters.emplace_back(offset, bytes);
    kernel_->parameter_bytes = offset + bytes;
  }

  void body() {
    for (int depth = 1; depth > 0;) {
      if (peek() == "{") {
        ++depth;
        take();
      } else if (peek() == "}") {
        --depth;
        take();
      } else if (peek() == ".reg" || peek() == ".pragma" || peek() == ".loc") {
        while (take() != ";") {
        }
      } else if (peek(1) == ":") {
        kernel_->labels[label(take())] = kernel_->code.size();
        take();
      } else {
        instruction();
      }
    }
  }

  size_t label(const std::string& name) {
    const auto [found, added] = label_numbers_.emplace(name, kernel_->labels.size());
    if (added) kernel_->labels.push_back(size_t(-1));
    return found->second;
  }

  int register_of(const std::string& name) {
    return registers_.emplace(name, static_cast<int>(registers_.size())).first->second;
  }

  void instruction() {
    Instruction made;
    const size_t begin = at_;
    if (peek() == "@") {
      take();
      if (peek() == "!") take(), made.guard_negated = true;
      made.guard = register_of(take());
    }
    made.opcode = split(take(), '.');
    for (const std::string& part : made.opcode)
      if (const auto type = type_of(part)) made.type = *type;
    while (peek() != ";") {
      made.operands.push_back(operand(made.opcode[0] == "bra"));
      if (peek() == ",") take();
    }
    take();
    for (size_t i = begin; i + 1 < at_; ++i) made.text += (i == begin ? "" : " ") + tokens_[i];
    made.run = find_instruction(made.opcode);
    if (made.run < 0) throw Failure{"unknown instruction: " + made.text};
    kernel_->code.push_back(std::move(made));
  }

  Operand operand(bool is_label) {
    Operand made;
    if (peek() == "{") {
      made.kind = Operand::vector;
      take();
      while (peek() != "}") {
        made.parts.push_back(operand(false));
        if (peek() == ",") take();
      }
      take();
      return made;
    }
    if (peek() == "[") return address();
    if (peek() == "!") take(), made.negated = true;
    if (peek() == "-" || std::isdigit(static_cast<unsigned char>(peek()[0])) != 0) {
      made.kind = Operand::immediate;
      made.value = number();
      return made;
    }
    const std::string word = take();
    if (is_label) {
      made.kind = Operand::label;
      made.index = static_cast<int>(label(word));
    } else if (const auto found = kernel_->parameter_offsets.find(word); found != kernel_->parameter_offsets.end()) {
      made.kind = Operand::parameter;
      made.value = found->second;
    } else if (word[0] == '%') {
      made.index = special(word);
      made.kind = made.index >= 0 ? Operand::special : Operand::reg;
      if (made.index < 0) made.index = register_of(word);
    } else {
      throw Failure{"unknown operand " + word};
    }
    return made;
  }

  Operand address() {
    Operand made;
    made.kind = Operand::memory;
    expect("[");
    const std::string base = take();
    if (const auto found = kernel_->parameter_offsets.find(base); found != kernel_->parameter_offsets.end()) {
      made.in_parameters = true;
      made.value = found->second;
    } else {
      made.index = register_of(base);
    }
    if (peek() == "+") take();
    if (peek() != "]") made.value += number();
    expect("]");
    return made;
  }

  static int special(const std::string& word) {
    static constexpr const char* kNames[] = {"%tid.x",  "%tid.y",  "%tid.z",  "%ctaid.x",  "%ctaid.y",  "%ctaid.z",
                                             "%ntid.x", "%ntid.y", "%ntid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"};
    for (int i = 0; i < 12; ++i)
      if (word == kNames[i]) return i;
    return -1;
  }

  uint64_t number() {
    const bool negative = peek() == "-";
    if (negative) take();
    const std::string word = take();
    if (word.starts_with("0f") || word.starts_with("0F") || word.starts_with("0d") || word.starts_with("0D"))
      return std::strtoull(word.c_str() + 2, nullptr, 16);
    const uint64_t value = std::strtoull(word.c_str(), nullptr, 0);
    return negative ? 0 - value : value;
  }

  std::vector<std::string> tokens_;
  size_t at_ = 0;
  std::shared_ptr<Kernel> kernel_;
  std::map<std::string, int> registers_;
  std::map<std::string, size_t> label_numbers_;
};

}  // namespace

std::shared_ptr<Module> parse(std::string_view text, std::string* reason) {
  try {
    return Parser(text).module();
  } catch (const Failure& failure) {
    *reason = failure.reason;
    return nullptr;
  }
}

}  // namespace standin::ptx
