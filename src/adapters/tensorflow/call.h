// One execution of a kernel that moves data: from TensorFlow's call, through the engine, to TensorFlow's callback.
// Called by the kernels of ops.cc.
//
// Thread rule: created in a thread of TensorFlow; then the engine's callbacks own it, one after another. It deletes
// itself before it notifies TensorFlow, because neither the kernel nor its context may be used afterwards.
#pragma once

#include "adapters/tensorflow/done_callback.h"
#include "adapters/tensorflow/verb.h"

namespace hvd::tensorflow {

// Runs the node once. Reports failures to TensorFlow, including a callback that cannot be copied.
void run(const Node& node, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

// Fails the execution with this text, prefixed by the operation's name.
void fail(TF_OpKernelContext* context, int code, const char* op, const std::string& text);

// TensorFlow's code for one of the engine's.
int tf_code(hvd_code code);

}  // namespace hvd::tensorflow
