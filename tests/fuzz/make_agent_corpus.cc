#include "fuzz/corpus_file.h"
#include "launcher/agents/agent_messages.h"
#include "launcher/agents/invitation.h"
#include "launcher/doctor/facts.h"

namespace hvd {
using namespace launcher;

void write_agent_corpus(const std::filesystem::path& folder) {
  AgentWork work{.work = {.command = {"python", "train.py"},
                          .directory = "/",
                          .variables = {{"A", "1=2"}},
                          .defaults = {{"OMP_NUM_THREADS", "3"}},
                          .bind_to = "core"},
                 .silence = 2.5};
  AgentMessage messages[] = {AgentHello{.version = "1.0", .host = "b", .pid = 4711, .cores = 8},
                             WorkerStarted{.worker = 3, .pid = 12},
                             WorkerNotStarted{.worker = 3, .reason = "no such file"},
                             WorkerOutput{.worker = 1, .stream = WorkerStream::err, .bytes = "text"},
                             WorkerEnded{.worker = 2, .ended = {.ending = {.signalled = true, .number = 9}}},
                             work,
                             AgentStart{{.worker = 7, .variables = {{"HOROVOD_RANK", "7"}}}},
                             AgentStop{.worker = -1, .at_once = true},
                             AgentRoom{.stream = WorkerStream::err, .bytes = 1 << 20}};
  for (const AgentMessage& message : messages) write_file(folder / std::to_string(message.index()), encode(message));
  std::string invitation =
      to_text(Invitation{.certificate = {}, .port = 4711, .seconds = 30, .addresses = "10.0.0.2,fd00::2"});
  write_file(folder / "invitation", std::as_bytes(std::span(invitation)));
  std::string answer = answer_text({});
  write_file(folder / "answer", std::as_bytes(std::span(answer)));
  std::string facts = to_json(Facts{}).dump();
  write_file(folder / "facts", std::as_bytes(std::span(facts)));
}

}  // namespace hvd
