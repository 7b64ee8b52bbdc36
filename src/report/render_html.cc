#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "report/render.h"
#include "report/words.h"

namespace hvd::report {
namespace {

constexpr size_t kMostBars = 128;     // ranks
constexpr size_t kMostCells = 48;     // rows and columns of the matrix
constexpr size_t kMostPoints = 1000;  // of the steps' plot

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#1d2129;--soft:#667;--paper:#fff;--line:#d9dce3;--card:#f5f6f9;
--computation:#4c78a8;--waiting:#e45756;--transfer:#f2a43a;--overhead:#9a9ea8;--hidden:#54a24b}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ee;--soft:#9aa3b2;--paper:#15181e;--line:#333945;--card:#1e222b;
--computation:#6d9bd0;--waiting:#f07b79;--transfer:#f5b95f;--overhead:#858b98;--hidden:#74c26a}}
*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:64rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}h1{font-size:1.4rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.note,.key,p{color:var(--soft)}.advice{background:var(--card);border-left:4px solid var(--waiting);padding:.6rem .9rem;
margin:.6rem 0;overflow-wrap:anywhere}.advice p{margin:.3rem 0 0}.gain{font-weight:600;white-space:nowrap}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
td:last-child,th:last-child{text-align:left}svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);
font:11px system-ui,sans-serif}.key span{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}
.computation{fill:var(--computation);background:var(--computation)}.waiting{fill:var(--waiting);background:var(--waiting)}
.transfer{fill:var(--transfer);background:var(--transfer)}.overhead{fill:var(--overhead);background:var(--overhead)}
.line{fill:none;stroke:var(--computation);stroke-width:1.2}.axis{stroke:var(--line)}.cell{fill:var(--waiting)}
)";

using Out = std::string;

template <class... Args>
void add(Out& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (char letter : printable(text)) {
    switch (letter) {
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '&': safe += "&amp;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += letter;
    }
  }
  return safe;
}

void add_advice(Out& out, const Findings& found) {
  add(out, "<h2>What to do</h2>\n");
  for (const Advice& advice : found.advice) {
    std::string gain = advice.gain > 0 ? fmt::format(" <span class=gain>up to {} per step ({:.0f} %)</span>",
                                                     duration(advice.gain), 100 * advice.gain / found.step)
                                       : "";
    add(out, "<div class=advice>{}{}<p>{}</p></div>\n", escaped(advice.text), gain, escaped(advice.action));
  }
}

void add_bars(Out& out, const Findings& found) {
  size_t count = std::min(found.ranks.size(), kMostBars);
  if (count == 0) return;
  double widest = 0;
  for (const RankTime& time : found.ranks)
    widest = std::max(widest, time.computation + time.waiting + time.transfer + time.overhead);
  if (widest <= 0) return;
  add(out,
      "<h2>Where the time goes, per step</h2>\n<p class=key><span class=computation></span>computation"
      "<span class=waiting></span>waiting for late ranks<span class=transfer></span>exposed communication"
      "<span class=overhead></span>overhead</p>\n");
  add(out, "<svg viewBox=\"0 0 640 {}\" role=img aria-label=\"time of each rank\">\n", count * 22 + 4);
  for (size_t i = 0; i < count; i++) {
    const RankTime& time = found.ranks[i];
    double at = 60;
    add(out, "<text x=0 y={}>rank {}</text>\n", i * 22 + 15, time.rank);
    auto bar = [&](const char* kind, const char* words, double length) {
      double width = 575 * length / widest;
      add(out, "<rect class={} x={:.2f} y={} width={:.2f} height=18><title>rank {}: {} {}</title></rect>\n", kind, at,
          i * 22 + 1, width, time.rank, words, duration(length));
      at += width;
    };
    bar("computation", "computation", time.computation);
    bar("waiting", "waiting for late ranks", time.waiting);
    bar("transfer", "exposed communication", time.transfer);
    bar("overhead", "overhead", time.overhead);
  }
  add(out, "</svg>\n");
  if (found.ranks.size() > count) add(out, "<p class=note>and {} more ranks</p>\n", found.ranks.size() - count);
  if (!found.has_waits)
    add(out, "<p class=note>The program does not wait in Horovod itself: what is exposed is an estimate.</p>\n");
}

void add_steps(Out& out, const Findings& found) {
  if (found.steps.size() < 2) return;
  size_t group = (found.steps.size() + kMostPoints - 1) / kMostPoints;  // steps in a point: the longest of them
  std::vector<double> points;
  for (size_t i = 0; i < found.steps.size(); i += group) {
    size_t end = std::min(i + group, found.steps.size());
    points.push_back(*std::max_element(found.steps.begin() + static_cast<std::ptrdiff_t>(i),
                                       found.steps.begin() + static_cast<std::ptrdiff_t>(end)));
  }
  double top = *std::max_element(points.begin(), points.end());
  add(out,
      "<h2>Step time</h2>\n<svg viewBox=\"0 0 640 170\" role=img aria-label=\"step time\">\n"
      "<line class=axis x1=60 y1=150 x2=635 y2=150 /><text x=0 y=14>{}</text><text x=0 y=150>0</text>"
      "<text x=60 y=166>step 0</text><text x=635 y=166 text-anchor=end>{}</text>\n<polyline class=line points=\"",
      duration(top), found.steps.size() - 1);
  for (size_t i = 0; i < points.size(); i++) {
    double x = 60 + 575 * static_cast<double>(i) / static_cast<double>(std::max<size_t>(points.size() - 1, 1));
    add(out, "{:.1f},{:.1f} ", x, 150 - 140 * points[i] / std::max(top, 1e-9));
  }
  add(out, "\" />\n</svg>\n");
}

void add_matrix(Out& out, const Findings& found) {
  size_t count = std::min(found.ranks.size(), kMostCells);
  double most = 0;
  for (const auto& row : found.waited) most = std::max(most, *std::max_element(row.begin(), row.end()));
  if (count < 2 || most <= 0) return;
  double side = 560.0 / static_cast<double>(std::max<size_t>(count, 8));
  add(out,
      "<h2>Who waited for whom</h2>\n<p>A row waits for a column; the darkest is {} per step.</p>\n"
      "<svg viewBox=\"0 0 640 {:.0f}\" role=img aria-label=\"who waited for whom\">\n",
      duration(most), side * static_cast<double>(count) + 20);
  for (size_t row = 0; row < count; row++) {
    double y = 18 + side * static_cast<double>(row);
    if (count <= 24) {
      add(out, "<text x=0 y={:.1f}>rank {}</text><text x={:.1f} y=12>{}</text>\n", y + side / 2 + 4,
          found.ranks[row].rank, 62 + side * static_cast<double>(row), found.ranks[row].rank);
    }
    for (size_t column = 0; column < count; column++) {
      add(out,
          "<rect class=cell fill-opacity={:.3f} stroke=\"var(--line)\" x={:.1f} y={:.1f} width={:.1f} height={:.1f}>"
          "<title>rank {} waits for rank {}: {}</title></rect>\n",
          found.waited[row][column] / most, 60 + side * static_cast<double>(column), y, side, side,
          found.ranks[row].rank, found.ranks[column].rank, duration(found.waited[row][column]));
    }
  }
  add(out, "</svg>\n");
}

void add_tensors(Out& out, const Findings& found) {
  if (found.tensors.empty()) return;
  add(out,
      "<h2>Slowest tensors</h2>\n<div class=scroll><table><tr><th>all together<th>each<th>times<th>size<th>lateness"
      "<th>last<th>tensor</tr>\n");
  for (const TensorTime& tensor : found.tensors) {
    add(out, "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{} ({})</tr>\n", duration(tensor.total),
        duration(tensor.transfer), tensor.count, size_text(static_cast<double>(tensor.bytes)),
        duration(tensor.lateness), tensor.last_rank < 0 ? "" : fmt::format("rank {}", tensor.last_rank),
        escaped(tensor.name), escaped(tensor.kind));
  }
  add(out, "</table></div>\n");
}

void add_facts(Out& out, const Findings& found) {
  add(out, "<h2>Fusion, cache, clocks</h2>\n<div class=scroll><table>\n");
  auto row = [&](const std::string& what, const std::string& value) {
    add(out, "<tr><td>{}<td>{}</tr>\n", escaped(value), escaped(what));
  };
  if (found.overlap >= 0)
    row("of the communication is hidden behind computation", fmt::format("{:.0f} %", 100 * found.overlap));
  if (found.plans > 0) {
    row("plans per step", fmt::format("{:.1f}", found.plans));
    row("tensors per plan", fmt::format("{:.1f}", found.tensors_per_plan));
    row("bytes per plan", size_text(found.bytes_per_plan));
    row("of the plans are below 64 KiB", fmt::format("{:.0f} %", 100 * found.small_plans));
  }
  if (found.latency > 0) row("for a small plan", duration(found.latency));
  if (found.rate > 0) row("per second in large plans", size_text(found.rate));
  if (found.cached >= 0)
    row("of the tensors were known from before (cache)", fmt::format("{:.0f} %", 100 * found.cached));
  if (found.cached >= 0) row("from the last submission to the start", duration(found.agreement));
  for (const HostClock& clock : found.clocks) {
    row(fmt::format("clock of {} ahead of rank 0's", clock.host),
        clock.is_known ? fmt::format("{} +- {}", duration(clock.offset), duration(clock.error)) : "not known");
  }
  add(out, "</table></div>\n");
}

}  // namespace

std::string render_html(const Findings& found) {
  Out out;
  add(out,
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, "
      "initial-scale=1\"><title>Horovod report</title><style>{}</style></head><body>\n<h1>Horovod report</h1>\n",
      kStyle);
  add(out, "<p>{} of {} ranks on {} host{}; {} recorded; {} operations; ", found.files, found.size, found.hosts.size(),
      found.hosts.size() == 1 ? "" : "s", duration(found.recorded), found.operations);
  if (found.steps.empty()) {
    add(out, "no steps were recognised.</p>\n");
  } else {
    add(out, "{} steps of {} ({} to {}).</p>\n", found.steps.size(), duration(found.step), duration(found.step_fast),
        duration(found.step_slow));
  }
  for (const std::string& problem : found.problems) add(out, "<p class=note>Note: {}</p>\n", escaped(problem));
  add_advice(out, found);
  add_bars(out, found);
  add_steps(out, found);
  add_matrix(out, found);
  add_tensors(out, found);
  add_facts(out, found);
  return out + "</body></html>\n";
}

}  // namespace hvd::report
