// One execution of a kernel that moves data: from TensorFlow's call, through the engine, to TensorFlow's callback.
// Called by the kernels of ops.cc.
//
// Thread rule: made in a thread of TensorFlow; the engine's callbacks then own it, one after the other. It deletes
// itself before TensorFlow is told, because nothing of the kernel or its context may be touched after that.
#pragma once

#include "adapters/tensorflow/done_callback.h"
#include "adapters/tensorflow/verb.h"

namespace hvd::tensorflow {

// Runs the node once. Failures, also of a callback that cannot be kept, are reported to TensorFlow.
void run(const Node& node, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

// Fails the execution with the text, after the operation's name.
void fail(TF_OpKernelContext* context, int code, const char* op, const std::string& text);

// TensorFlow's code for one of the engine's.
int tf_code(hvd_code code);

}  // namespace hvd::tensorflow
