#include <fmt/core.h>
#include <yaml.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "launcher/command_line/arguments.h"
#include "launcher/command_line/closest.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kController = "controller";
constexpr std::string_view kIgnored = "logging.hide_timestamp";  // upstream no longer reads it

struct Entry {
  std::string key;  // includes its sections: "params.cycle_time_ms"
  std::string value;
  size_t line;
};

// A parser and its document.
class Document {
 public:
  Document() { yaml_parser_initialize(&parser_); }
  Document(const Document&) = delete;
  ~Document() {
    if (loaded_) yaml_document_delete(&document_);
    yaml_parser_delete(&parser_);
  }

  Status load(std::FILE* file, const std::string& path) {
    yaml_parser_set_input_file(&parser_, file);
    loaded_ = yaml_parser_load(&parser_, &document_) != 0;
    if (loaded_) return {};
    return invalid_argument(fmt::format("{}:{}: {}", path, parser_.problem_mark.line + 1,
                                        parser_.problem ? parser_.problem : "this is not YAML"));
  }

  yaml_node_t* root() { return yaml_document_get_root_node(&document_); }
  yaml_node_t* node(int index) { return yaml_document_get_node(&document_, index); }

 private:
  yaml_parser_t parser_{};
  yaml_document_t document_{};
  bool loaded_ = false;
};

std::string text_of(const yaml_node_t& node) {
  return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
}

size_t line_of(const yaml_node_t& node) { return node.start_mark.line + 1; }

// A null value of YAML 1.1.
bool is_null(const yaml_node_t& node) {
  if (node.type != YAML_SCALAR_NODE || node.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
  std::string text = text_of(node);
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

// The file has keys, and sections of keys; there is no deeper nesting.
Status read_mapping(Document& document, yaml_node_t& mapping, const std::string& section, const std::string& path,
                    std::vector<Entry>& entries) {
  auto bad = [&](const yaml_node_t& node, std::string_view text) {
    return invalid_argument(fmt::format("{}:{}: {}", path, line_of(node), text));
  };
  if (mapping.type != YAML_MAPPING_NODE) return bad(mapping, "expected KEY: VALUE");
  for (auto* pair = mapping.data.mapping.pairs.start; pair < mapping.data.mapping.pairs.top; ++pair) {
    yaml_node_t &key = *document.node(pair->key), &value = *document.node(pair->value);
    if (key.type != YAML_SCALAR_NODE) return bad(key, "expected a name");
    std::string name = section.empty() ? text_of(key) : fmt::format("{}.{}", section, text_of(key));
    if (is_null(value)) continue;
    if (value.type == YAML_MAPPING_NODE && section.empty()) {
      if (Status status = read_mapping(document, value, name, path, entries); !status.ok()) return status;
    } else if (value.type == YAML_SCALAR_NODE) {
      entries.push_back({std::move(name), text_of(value), line_of(key)});
    } else {
      return bad(value, fmt::format("{}: expected a single value", name));
    }
  }
  return {};
}

Result<std::vector<Entry>> read_entries(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (!file) return system_error("cannot read --config-file", path);
  Document document;
  if (Status status = document.load(file.get(), path); !status.ok()) return status;
  std::vector<Entry> entries;
  if (yaml_node_t* root = document.root(); root && !is_null(*root)) {
    if (Status status = read_mapping(document, *root, "", path, entries); !status.ok()) return status;
  }
  return entries;
}

// Like YAML 1.1 and PyYAML.
std::optional<bool> read_bool(const Entry& entry) {
  std::string lower = entry.value;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::string_view text : {"true", "yes", "on", "1"})
    if (lower == text) return true;
  for (std::string_view text : {"false", "no", "off", "0"})
    if (lower == text) return false;
  return std::nullopt;
}

std::string_view config_key_of(const OptionRow& row) {
  std::string_view key = row.config_key;
  return key.starts_with('!') ? key.substr(1) : key;
}

std::string unknown_key(const std::string& key) {
  std::vector<std::string_view> known{kController};
  for (const OptionRow& row : option_rows())
    if (*row.config_key) known.push_back(config_key_of(row));
  std::string_view near = closest(key, known);
  return near.empty() ? fmt::format("unknown key {}", key) : fmt::format("unknown key {}; did you mean {}?", key, near);
}

Status apply(const Entry& entry, const std::string& path, CommandLine& line, std::string& controller) {
  std::string position = fmt::format("{}:{}:", path, entry.line);
  if (entry.key == kController) {
    controller = entry.value;
    if (controller == "gloo" || controller == "mpi") return {};
    return invalid_argument(fmt::format("{} controller {}: expected gloo or mpi", position, controller));
  }
  auto rows = option_rows();
  auto row = std::find_if(rows.begin(), rows.end(),
                          [&](const OptionRow& one) { return *one.config_key && config_key_of(one) == entry.key; });
  if (row == rows.end()) {
    line.warnings.push_back(fmt::format("{} {}", position,
                                        entry.key == kIgnored ? "logging.hide_timestamp is not read; use "
                                                                "logging.with_timestamp"
                                                              : unknown_key(entry.key)));
    return {};
  }
  std::string source = fmt::format("{} {}", position, entry.key);
  if (!std::holds_alternative<Switch>(row->target)) return set_option(*row, false, {entry.value}, source, line);
  auto on = read_bool(entry);
  if (!on) return invalid_argument(fmt::format("{} {}: expected true or false", source, entry.value));
  bool is_inverted = *row->config_key == '!';
  return set_option(*row, *on == is_inverted, {}, source, line);
}

}  // namespace

Status apply_config_file(const std::string& path, CommandLine& line, std::string& controller) {
  auto entries = read_entries(path);
  if (!entries.ok()) return entries.status();
  for (const Entry& entry : *entries)
    if (Status status = apply(entry, path, line, controller); !status.ok()) return status;
  return {};
}

}  // namespace hvd::launcher
