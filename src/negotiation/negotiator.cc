#include "negotiation/negotiator.h"

#include <algorithm>
#include <utility>

#include "negotiation/carried.h"
#include "negotiation/known_plans.h"
#include "negotiation/messages.h"
#include "negotiation/name_key.h"
#include "negotiation/signature.h"

namespace hvd {
class Negotiator::State {
 public:
  State(int32_t world_size, CarriedListener* carried) : world_size_(world_size), carrying_(carried, known_) {}

  bool announce(const Request& request, ByteView data);
  void announce_shutdown(const std::string& reason, const Origin& origin);
  ByteView outgoing() const { return outgoing_; }
  void clear_outgoing() { outgoing_.clear(); }
  void finish_offered() { carrying_.finish_offered(); }
  Status receive(ByteView message, std::vector<Decision>& out);

 private:
  void acknowledge();
  void read_item(Decoder& in, std::vector<Decision>& out);
  void read_plan(Decoder& in, std::vector<Decision>& out);
  AgreedRequest read_tensor(Decoder& in, bool& is_cached);
  void take_devices(Decoder& in);
  std::optional<Device> announced_device(const Request& request);
  void forget(Decoder& in);

  int32_t world_size_;
  KnownPlans known_;
  CarryingRank carrying_;
  bool use_cache_ = true;
  CacheId last_id_ = 0;
  uint64_t processed_ = 0;       // number of the last message read
  uint64_t unacknowledged_ = 0;  // messages that `outgoing_` has not acknowledged yet
  size_t remembered_ = 0;        // evictions and errors in those messages, see kMaxRemembered
  std::vector<std::shared_ptr<const std::vector<Device>>> device_maps_;  // number 1 is the first
  DevicePlaces next_places_;                                             // of the next plan
  NameMap<Device> devices_;  // accelerators of full requests in flight; host memory is not recorded
  Bytes outgoing_;
};

// Everything written from now on is written with knowledge of all messages read so far.
void Negotiator::State::acknowledge() {
  if (unacknowledged_ == 0) return;
  Encoder encoder(outgoing_);
  write_acknowledge(encoder, std::exchange(unacknowledged_, 0));
  remembered_ = 0;
}

bool Negotiator::State::announce(const Request& request, ByteView data) {
  acknowledge();
  Encoder encoder(outgoing_);
  if (KnownPlan* known = use_cache_ ? known_.find(request) : nullptr) {
    if (data.empty()) {
      write_cached(encoder, known->id);
    } else {
      carrying_.announce(*known, data, encoder);
    }
    return true;
  }
  write_full(encoder, request);
  if (request.device != kHost) {
    devices_.insert_or_assign(NameKey({gathering_set(request), request.name}), request.device);
  }
  return false;
}

void Negotiator::State::announce_shutdown(const std::string& reason, const Origin& origin) {
  acknowledge();
  Encoder encoder(outgoing_);
  write_up_shutdown(encoder, reason, origin);
}

// ---- decisions ----

Status Negotiator::State::receive(ByteView message, std::vector<Decision>& out) {
  Decoder in(message);
  if (in.varint() != processed_ + 1) in.fail();
  while (in.ok() && !in.at_end()) read_item(in, out);
  if (!in.ok()) return {Code::unknown, "the coordinator sent bytes that are not its next negotiation message"};
  processed_++;
  unacknowledged_++;
  if (remembered_ >= kMaxRemembered) acknowledge();
  return {};
}

void Negotiator::State::read_item(Decoder& in, std::vector<Decision>& out) {
  switch (in.one_of(kLastDownTag)) {
    case DownTag::plan: return read_plan(in, out);
    case DownTag::evicted: return forget(in);
    case DownTag::offer: return carrying_.take_offer(in);
    case DownTag::devices: return take_devices(in);
    case DownTag::tuning: {
      Tuning tuning = read_tuning(in);
      if (!in.ok()) return;
      use_cache_ = tuning.cache_enabled;
      out.emplace_back(tuning);
      return;
    }
    case DownTag::stall: {
      StallReport report = read_stall(in);
      if (in.ok()) out.emplace_back(std::move(report));
      return;
    }
    case DownTag::shutdown: {
      ShutdownNotice notice = read_shutdown(in, world_size_);
      if (in.ok()) out.emplace_back(std::move(notice));
      return;
    }
  }
}

void Negotiator::State::read_plan(Decoder& in, std::vector<Decision>& out) {
  PlanHead head = read_plan_head(in);
  if (!in.ok()) return;
  Plan& plan = std::get<Plan>(out.emplace_back(std::in_place_type<Plan>));
  if (head.error != Code::ok) remembered_++;
  plan.error = head.error;
  plan.error_text = head.error_text;
  plan.error_origin = std::move(head.error_origin);
  plan.result = head.result;
  plan.places = std::exchange(next_places_, {});
  plan.tensors.reserve(head.tensors);
  plan.is_cached = true;
  for (size_t i = 0; i < head.tensors && in.ok(); i++) {
    AgreedRequest request = read_tensor(in, plan.is_cached);
    if (request != nullptr && i > 0 && !can_share_plan(plan.first(), *request)) in.fail();
    plan.tensors.push_back(std::move(request));
  }
  if (!in.ok()) out.pop_back();
}

void Negotiator::State::take_devices(Decoder& in) {
  DevicesHead head = read_devices(in, static_cast<uint32_t>(device_maps_.size()), static_cast<size_t>(world_size_));
  if (!in.ok()) return;
  if (head.number > device_maps_.size()) {
    device_maps_.push_back(std::make_shared<const std::vector<Device>>(std::move(head.map)));
  }
  next_places_ = {.number = head.number, .map = device_maps_[head.number - 1]};
}

AgreedRequest Negotiator::State::read_tensor(Decoder& in, bool& is_cached) {
  TensorHead head = read_tensor_head(in);
  if (!in.ok()) return nullptr;
  if (!head.with_request) {
    KnownPlan* known = known_.find(head.id);
    if (known == nullptr) {
      in.fail();
      return nullptr;
    }
    known->carried.reset();
    return known->request;
  }
  is_cached = false;
  auto request = std::make_shared<const Request>(read_request(in));
  if (head.id != 0 && head.id <= last_id_) in.fail();
  if (!in.ok()) return nullptr;
  std::optional<Device> device = announced_device(*request);
  if (head.id != 0) {
    last_id_ = head.id;
    known_.add(head.id, request, device);
  }
  return request;
}

// The device that this rank announced for the request that has now been agreed on.
std::optional<Device> Negotiator::State::announced_device(const Request& request) {
  if (request.device == kHost) return kHost;
  auto found = devices_.find(NameView{gathering_set(request), request.name});
  if (found == devices_.end()) return std::nullopt;
  Device device = found->second;
  devices_.erase(found);
  return device;
}

void Negotiator::State::forget(Decoder& in) {
  for (CacheId id : read_evicted(in)) {
    if (!known_.erase(id)) in.fail();
    remembered_++;
  }
}

Negotiator::Negotiator(int32_t world_size, CarriedListener* carried)
    : state_(std::make_unique<State>(world_size, carried)) {}
Negotiator::~Negotiator() = default;

bool Negotiator::announce(const Request& request, ByteView data) { return state_->announce(request, data); }
void Negotiator::announce_shutdown(const std::string& reason, const Origin& origin) {
  state_->announce_shutdown(reason, origin);
}
ByteView Negotiator::outgoing() const { return state_->outgoing(); }
void Negotiator::clear_outgoing() { state_->clear_outgoing(); }
void Negotiator::finish_offered() { state_->finish_offered(); }
Status Negotiator::receive(ByteView message, std::vector<Decision>& out) { return state_->receive(message, out); }

}  // namespace hvd
