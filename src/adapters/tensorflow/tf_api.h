// The part of TensorFlow's C API that the adapter needs: our own declarations, looked up at run time, so that one
// binary works with every TensorFlow from 2.12 on and none is needed to build it. Handle types are opaque.
//
// Thread rule: load() runs once, while TensorFlow loads this library; afterwards the table is only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_AsyncOpKernelDoneCallback;
struct TF_StringView {
  const char* data;
  size_t len;
};
}

namespace hvd::tensorflow {

enum TfCode : int {
  kTfUnknown = 2,
  kTfInvalidArgument = 3,
  kTfFailedPrecondition = 9,
  kTfAborted = 10,
};

constexpr int kTfInt32 = 3;

using Create = void* (*)(TF_OpKernelConstruction*);
using Compute = void (*)(void*, TF_OpKernelContext*);
using ComputeAsync = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using Delete = void (*)(void*);
using InferShapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// Members are named as TensorFlow's functions, without TF_.
struct TfApi {
  TF_Status* (*NewStatus)();
  void (*DeleteStatus)(TF_Status*);
  void (*SetStatus)(TF_Status*, int, const char*);
  int (*GetCode)(const TF_Status*);
  const char* (*Message)(const TF_Status*);

  TF_OpDefinitionBuilder* (*NewOpDefinitionBuilder)(const char*);
  void (*OpDefinitionBuilderAddAttr)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderAddInput)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderAddOutput)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderSetIsStateful)(TF_OpDefinitionBuilder*, bool);
  void (*OpDefinitionBuilderSetShapeInferenceFunction)(TF_OpDefinitionBuilder*, InferShapes);
  void (*RegisterOpDefinition)(TF_OpDefinitionBuilder*, TF_Status*);

  TF_KernelBuilder* (*NewKernelBuilder)(const char*, const char*, Create, Compute, Delete);
  TF_KernelBuilder* (*NewAsyncKernelBuilder)(const char*, const char*, Create, ComputeAsync, Delete);
  void (*KernelBuilder_HostMemory)(TF_KernelBuilder*, const char*);
  void (*RegisterKernelBuilder)(const char*, TF_KernelBuilder*, TF_Status*);

  TF_StringView (*OpKernelConstruction_GetName)(TF_OpKernelConstruction*);
  void (*OpKernelConstruction_GetAttrSize)(TF_OpKernelConstruction*, const char*, int32_t*, int32_t*, TF_Status*);
  void (*OpKernelConstruction_GetAttrString)(TF_OpKernelConstruction*, const char*, char*, size_t, TF_Status*);
  void (*OpKernelConstruction_GetAttrStringList)(TF_OpKernelConstruction*, const char*, char**, size_t*, int, void*,
                                                 size_t, TF_Status*);
  void (*OpKernelConstruction_GetAttrInt64)(TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*);
  void (*OpKernelConstruction_GetAttrFloat)(TF_OpKernelConstruction*, const char*, float*, TF_Status*);
  void (*OpKernelConstruction_GetAttrBool)(TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*);
  void (*OpKernelConstruction_Failure)(TF_OpKernelConstruction*, TF_Status*);

  int (*NumInputs)(TF_OpKernelContext*);
  void (*GetInput)(TF_OpKernelContext*, int, TF_Tensor**, TF_Status*);
  TF_Tensor* (*AllocateOutput)(TF_OpKernelContext*, int, int, const int64_t*, int, size_t, TF_Status*);
  TF_Tensor* (*ForwardInputOrAllocateOutput)(TF_OpKernelContext*, const int*, int, int, const int64_t*, int, int*,
                                             TF_Status*);
  int64_t (*GetIterId)(TF_OpKernelContext*);
  void (*OpKernelContext_Failure)(TF_OpKernelContext*, TF_Status*);
  void (*RunAsyncOpKernelDoneCallback)(TF_AsyncOpKernelDoneCallback*);

  void* (*TensorData)(const TF_Tensor*);
  int (*NumDims)(const TF_Tensor*);
  int64_t (*Dim)(const TF_Tensor*, int);
  int (*TensorType)(const TF_Tensor*);
  void (*DeleteTensor)(TF_Tensor*);

  TF_ShapeHandle* (*NewShapeHandle)();
  void (*DeleteShapeHandle)(TF_ShapeHandle*);
  int64_t (*ShapeInferenceContextNumInputs)(TF_ShapeInferenceContext*);
  void (*ShapeInferenceContextGetInput)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  void (*ShapeInferenceContextSetOutput)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  TF_ShapeHandle* (*ShapeInferenceContextScalar)(TF_ShapeInferenceContext*);
  TF_ShapeHandle* (*ShapeInferenceContextVectorFromSize)(TF_ShapeInferenceContext*, size_t);
  int (*ShapeInferenceContextRankKnown)(TF_ShapeInferenceContext*, TF_ShapeHandle*);
  void (*ShapeInferenceContextWithRankAtLeast)(TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t, TF_ShapeHandle*,
                                               TF_Status*);
  void (*ShapeInferenceContextSubshape)(TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t, int64_t, TF_ShapeHandle*,
                                        TF_Status*);
  void (*ShapeInferenceContextConcatenateShapes)(TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*,
                                                 TF_ShapeHandle*, TF_Status*);
};

// The loaded table.
const TfApi& api();
// Fills the table. Returns the missing functions, or an empty text.
std::string load_api();

}  // namespace hvd::tensorflow
