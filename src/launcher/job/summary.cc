#include "launcher/job/summary.h"

#include <fmt/core.h>

#include "base/joined.h"

namespace hvd::launcher {

std::string summary_of(const FailedJob& job) {
  if (!job.cause) return fmt::format("horovodrun: {}\n{}{}", job.reason, job.dump, job.dump.empty() ? "" : "\n");
  const Failure& cause = *job.cause;
  // On one host all ranks would fail in the same way, so the rank does not matter.
  if (job.reason.empty() && cause.kind == Failure::Kind::not_started && job.hosts == 1)
    return fmt::format("horovodrun: {}\n", cause.reason);
  std::string text = "horovodrun: ";
  if (!job.reason.empty()) text += fmt::format("{}\nThe last failure: ", job.reason);
  text += describe(cause, job.began);
  if (job.stopped > 0) text += fmt::format("; the job was stopped with {} still running", ranks_text(job.stopped));
  text += "\n";
  if (std::string words = own_words(cause.report); !words.empty() && cause.kind != Failure::Kind::told)
    text += fmt::format("It {}\n", words);
  if (std::string hint = hint_for(cause, job.last_lines); !hint.empty())
    text += fmt::format("Hint: {}{}\n", hint, hint.ends_with('?') ? "" : ".");
  text += describe(job.after, cause);
  if (job.was_silent) text += "It wrote nothing to stderr.\n";
  if (!job.dump.empty()) text += job.dump + "\n";
  if (!job.last_lines.empty())
    text += fmt::format("The last lines of its stderr:\n    {}\n", joined(job.last_lines, "\n    "));
  return text;
}

}  // namespace hvd::launcher
