// libnccl.so.2 is a library of its own that uses the stand-in's core inside libcuda.so.1; these are the shared names.
#pragma once

#define STANDIN_VISIBLE __attribute__((visibility("default")))
#define STANDIN_API extern "C" STANDIN_VISIBLE
