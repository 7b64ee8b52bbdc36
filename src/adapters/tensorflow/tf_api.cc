#include "adapters/tensorflow/tf_api.h"

#include <dlfcn.h>

namespace hvd::tensorflow {
namespace {

TfApi table;

// TensorFlow's symbols are global if Python's import made them so; in any case its library is loaded.
void* find(const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  static void* framework = dlopen("libtensorflow_framework.so.2", RTLD_NOW | RTLD_NOLOAD);
  return framework != nullptr ? dlsym(framework, name) : nullptr;
}

class Loader {
 public:
  template <class Function>
  void operator()(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(find(name));
    if (function == nullptr) missing_ += missing_.empty() ? name : std::string(", ") + name;
  }
  std::string missing() && { return std::move(missing_); }

 private:
  std::string missing_;
};

}  // namespace

const TfApi& api() { return table; }

std::string load_api() {
  Loader load;
#define HVD_LOAD(name) load(table.name, "TF_" #name)
  HVD_LOAD(NewStatus);
  HVD_LOAD(DeleteStatus);
  HVD_LOAD(SetStatus);
  HVD_LOAD(GetCode);
  HVD_LOAD(Message);
  HVD_LOAD(NewOpDefinitionBuilder);
  HVD_LOAD(OpDefinitionBuilderAddAttr);
  HVD_LOAD(OpDefinitionBuilderAddInput);
  HVD_LOAD(OpDefinitionBuilderAddOutput);
  HVD_LOAD(OpDefinitionBuilderSetIsStateful);
  HVD_LOAD(OpDefinitionBuilderSetShapeInferenceFunction);
  HVD_LOAD(RegisterOpDefinition);
  HVD_LOAD(NewKernelBuilder);
  HVD_LOAD(NewAsyncKernelBuilder);
  HVD_LOAD(KernelBuilder_HostMemory);
  HVD_LOAD(RegisterKernelBuilder);
  HVD_LOAD(OpKernelConstruction_GetName);
  HVD_LOAD(OpKernelConstruction_GetAttrSize);
  HVD_LOAD(OpKernelConstruction_GetAttrString);
  HVD_LOAD(OpKernelConstruction_GetAttrStringList);
  HVD_LOAD(OpKernelConstruction_GetAttrInt64);
  HVD_LOAD(OpKernelConstruction_GetAttrFloat);
  HVD_LOAD(OpKernelConstruction_GetAttrBool);
  HVD_LOAD(OpKernelConstruction_Failure);
  HVD_LOAD(NumInputs);
  HVD_LOAD(GetInput);
  HVD_LOAD(AllocateOutput);
  HVD_LOAD(ForwardInputOrAllocateOutput);
  HVD_LOAD(GetIterId);
  HVD_LOAD(OpKernelContext_Failure);
  HVD_LOAD(RunAsyncOpKernelDoneCallback);
  HVD_LOAD(TensorData);
  HVD_LOAD(NumDims);
  HVD_LOAD(Dim);
  HVD_LOAD(TensorType);
  HVD_LOAD(DeleteTensor);
  HVD_LOAD(NewShapeHandle);
  HVD_LOAD(DeleteShapeHandle);
  HVD_LOAD(ShapeInferenceContextNumInputs);
  HVD_LOAD(ShapeInferenceContextGetInput);
  HVD_LOAD(ShapeInferenceContextSetOutput);
  HVD_LOAD(ShapeInferenceContextScalar);
  HVD_LOAD(ShapeInferenceContextVectorFromSize);
  HVD_LOAD(ShapeInferenceContextRankKnown);
  HVD_LOAD(ShapeInferenceContextWithRankAtLeast);
  HVD_LOAD(ShapeInferenceContextSubshape);
  HVD_LOAD(ShapeInferenceContextConcatenateShapes);
#undef HVD_LOAD
  return std::move(load).missing();
}

}  // namespace hvd::tensorflow
