// Streams and events.
#include <utility>

#include "cuda_call.h"

using namespace standin;

int cuStreamCreate(void** stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

int cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  STANDIN_ENTER_CONTEXT("cuStreamCreateWithPriority");
  count(&Counts::stream_creates);
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  *stream = to_handle(make_stream(current_context(), (flags & cuda::kStreamNonBlocking) == 0, stack));
  return 0;
}

int cuStreamDestroy_v2(void* handle) {
  STANDIN_ENTER("cuStreamDestroy_v2");
  const std::lock_guard lock(core().mutex);
  Stream* stream = as_stream(handle, "cuStreamDestroy_v2");
  if (stream == nullptr || stream->is_default) return cuda::kInvalidHandle;
  destroy(*stream);
  return 0;
}

int cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  STANDIN_ENTER_CONTEXT("cuStreamWaitEvent");
  count(&Counts::stream_waits);
  if (settings().count_only) return 0;
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  Stream* stream = as_stream(handle, "cuStreamWaitEvent");
  const Event* event = as_event(event_handle);
  if (stream == nullptr || event == nullptr) return cuda::kInvalidHandle;
  context_stack().push_back(stream->context);  // a stream of any context may wait
  int code = 0;
  launch_stream(handle, "cuStreamWaitEvent", &code);
  context_stack().pop_back();
  if (code != 0) return code;
  if (!event->recorded) {
    if (!settings().unrecorded_waits)
      violation("cuStreamWaitEvent for event " + std::to_string(event->number) +
                ", which was never recorded, waits for nothing\n  event made in\n" + to_text(event->stack) +
                "  wait called from\n" + to_text(stack));
    return 0;
  }
  stream->clock.join(event->clock);
  launch(*stream, host_site("cuStreamWaitEvent", stack), "a wait for event " + std::to_string(event->number),
         {event->point}, nullptr);
  return 0;
}

int cuStreamQuery(void* handle) {
  STANDIN_ENTER_CONTEXT("cuStreamQuery");
  count(&Counts::queries);
  if (settings().count_only) return 0;
  const std::lock_guard lock(core().mutex);
  Stream* stream = as_stream(handle, "cuStreamQuery");
  if (stream == nullptr) return cuda::kInvalidHandle;
  demand({stream->shared_from_this(), stream->submitted});
  if (!stream->done(stream->submitted)) return cuda::kNotReady;
  host_clock().join(stream->clock);
  return sticky_error();
}

int cuStreamSynchronize(void* handle) {
  STANDIN_ENTER_CONTEXT("cuStreamSynchronize");
  count(&Counts::host_syncs);
  if (settings().count_only) return 0;
  std::unique_lock lock(core().mutex);
  Stream* stream = as_stream(handle, "cuStreamSynchronize");
  if (stream == nullptr) return cuda::kInvalidHandle;
  const VectorClock clock = stream->clock;
  wait_for({stream->shared_from_this(), stream->submitted}, lock);
  host_clock().join(clock);
  return sticky_error();
}

int cuStreamIsCapturing(void* handle, int* status) {
  STANDIN_ENTER_CONTEXT("cuStreamIsCapturing");
  const auto fault = fault_at("cuStreamIsCapturing");
  const std::lock_guard lock(core().mutex);
  const Stream* stream = as_stream(handle, "cuStreamIsCapturing");
  if (stream == nullptr) return cuda::kInvalidHandle;
  *status = fault && fault->fault == Fault::capturing ? 1 : stream->capture;
  return 0;
}

int cuStreamBeginCapture_v2(void* handle, int) {
  STANDIN_ENTER_CONTEXT("cuStreamBeginCapture_v2");
  const std::lock_guard lock(core().mutex);
  Stream* stream = as_stream(handle, "cuStreamBeginCapture_v2");
  if (stream == nullptr || stream->is_default || stream->capture != 0) return cuda::kCaptureUnsupported;
  stream->capture = 1;
  return 0;
}

int cuStreamEndCapture(void* handle, void** graph) {
  STANDIN_ENTER_CONTEXT("cuStreamEndCapture");
  const std::lock_guard lock(core().mutex);
  Stream* stream = as_stream(handle, "cuStreamEndCapture");
  if (stream == nullptr || stream->capture == 0) return cuda::kInvalidValue;
  *graph = nullptr;
  return std::exchange(stream->capture, 0) == 2 ? cuda::kCaptureInvalidated : 0;
}

int cuGraphDestroy(void*) { return 0; }

int cuEventCreate(void** event, unsigned flags) {
  STANDIN_ENTER_CONTEXT("cuEventCreate");
  count(&Counts::event_creates);
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  *event = make_event((flags & cuda::kEventDisableTiming) == 0, stack);
  return 0;
}

int cuEventRecord(void* event_handle, void* handle) {
  STANDIN_ENTER_CONTEXT("cuEventRecord");
  count(&Counts::event_records);
  if (settings().count_only) return 0;
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  Event* event = as_event(event_handle);
  int code = 0;
  Stream* stream = launch_stream(handle, "cuEventRecord", &code);
  if (event == nullptr || stream == nullptr) return cuda::kInvalidHandle;
  if (event->context != stream->context) {
    violation("cuEventRecord: event " + std::to_string(event->number) + " belongs to GPU " +
              std::to_string(event->context->gpu) + ", the stream to GPU " + std::to_string(stream->context->gpu) +
              "\n" + to_text(stack));
    return cuda::kInvalidHandle;
  }
  auto time = std::make_shared<std::chrono::steady_clock::time_point>();
  event->point = launch(*stream, host_site("cuEventRecord", stack),
                        "a record of event " + std::to_string(event->number), {}, [time](const SitePointer&) {
                          const std::lock_guard timing(core().mutex);
                          *time = std::chrono::steady_clock::now();
                        });
  event->time = time;
  event->clock = stream->clock;
  event->recorded = true;
  return 0;
}

namespace {

void refuse_unrecorded(const Event& event, const char* call) {
  if (settings().unrecorded_waits) return;
  violation(std::string(call) + " for event " + std::to_string(event.number) +
            ", which was never recorded and so counts as complete\n  event made in\n" + to_text(event.stack) +
            "  called from\n" + to_text(here()));
}

uint64_t query_count = 0;

}  // namespace

int cuEventQuery(void* handle) {
  STANDIN_ENTER_CONTEXT("cuEventQuery");
  count(&Counts::queries);
  if (settings().count_only) return 0;
  const std::lock_guard lock(core().mutex);
  const Event* event = as_event(handle);
  if (event == nullptr) return cuda::kInvalidHandle;
  if (!event->recorded) return refuse_unrecorded(*event, "cuEventQuery"), 0;
  demand(event->point);
  if (!event->point.stream->done(event->point.position)) return cuda::kNotReady;
  if (sticky_error() == 0 && randomly(++query_count, 4)) return cuda::kNotReady;  // a moment later it is seen
  host_clock().join(event->clock);
  return sticky_error();
}

int cuEventSynchronize(void* handle) {
  STANDIN_ENTER_CONTEXT("cuEventSynchronize");
  count(&Counts::host_syncs);
  if (settings().count_only) return 0;
  std::unique_lock lock(core().mutex);
  const Event* event = as_event(handle);
  if (event == nullptr) return cuda::kInvalidHandle;
  if (!event->recorded) return refuse_unrecorded(*event, "cuEventSynchronize"), 0;
  const VectorClock clock = event->clock;
  wait_for(Point(event->point), lock);
  host_clock().join(clock);
  return sticky_error();
}

int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  STANDIN_ENTER_CONTEXT("cuEventElapsedTime");
  const std::lock_guard lock(core().mutex);
  const Event *from = as_event(start), *to = as_event(end);
  if (from == nullptr || to == nullptr || !from->timed || !to->timed || !from->recorded || !to->recorded)
    return cuda::kInvalidHandle;
  for (const Event* event : {from, to})
    if (!event->point.stream->done(event->point.position)) return cuda::kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(*to->time - *from->time).count();
  return 0;
}

int cuEventDestroy_v2(void* handle) {
  STANDIN_ENTER("cuEventDestroy_v2");
  const std::lock_guard lock(core().mutex);
  Event* event = as_event(handle);
  if (event == nullptr) return cuda::kInvalidHandle;
  event->destroyed = true;
  return 0;
}
