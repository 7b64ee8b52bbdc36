// Local rank 0 of a host, to which the others connect (host_meeting.h). A connection is read only when it has data, so
// a silent or slow one does not delay the ranks; a process that does not prove that it belongs to the job is
// disconnected. Thread rule: one thread; meet() blocks.
#pragma once

#include <list>
#include <string>

#include "rendezvous/host_greeting.h"
#include "rendezvous/host_meeting.h"
#include "rendezvous/host_messages.h"

namespace hvd {

class HostLeader {
 public:
  HostLeader(const World& world, const HostGreeting& greeting, HostArrival own, TimePoint deadline, int interrupt);

  Result<HostMeeting> meet(UniqueFd memory);

 private:
  struct Caller {  // a connection that has not given its proof yet
    UniqueFd socket;
    bool is_challenged = false;
    HostOpening opening;
    Nonce nonce{};
  };

  Status listen();
  Result<bool> take_name(size_t index);  // false: it belongs to another user
  Status receive_all();
  Status accept_caller();
  // Processes data from a caller. A caller that is done is removed from the list or becomes a member of the group.
  Status hear(std::list<Caller>::iterator caller);
  Status hear_hello(std::list<Caller>::iterator caller);
  void send_away(std::list<Caller>::iterator caller);
  Status check(const HostHello& hello) const;
  Status agree();
  void note(size_t local, int32_t rank, int32_t pid, HostArrival arrival);
  Status why_not() const;
  Status refuse_all(Status status);
  Result<HostMeeting> welcome_all();

  const World& world_;
  const HostGreeting& greeting_;
  TimePoint deadline_;
  int interrupt_;
  HostMeeting met_;
  HostWelcome welcome_;
  std::string name_;
  UniqueFd listener_;
  std::list<Caller> callers_;  // the oldest first
  int strangers_ = 0;
  int32_t missing_ = 0;
};

}  // namespace hvd
