#include "adapters/tensorflow/shapes.h"

#include "adapters/tensorflow/tf_objects.h"

namespace hvd::tensorflow {
namespace {

constexpr size_t kUnknown = static_cast<size_t>(-1);

bool ok(TF_Status* status) { return api().GetCode(status) == 0; }

void rows_unknown(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  Shape input(api().NewShapeHandle()), checked(api().NewShapeHandle());
  api().ShapeInferenceContextGetInput(context, index, input.get(), status);
  if (!ok(status)) return;
  if (api().ShapeInferenceContextRankKnown(context, input.get()) == 0) {
    return api().ShapeInferenceContextSetOutput(context, index, input.get(), status);
  }
  api().ShapeInferenceContextWithRankAtLeast(context, input.get(), 1, checked.get(), status);
  if (!ok(status)) return;
  Shape row(api().NewShapeHandle()), result(api().NewShapeHandle());
  api().ShapeInferenceContextSubshape(context, checked.get(), 1, INT64_MAX, row.get(), status);
  if (!ok(status)) return;
  Shape rows(api().ShapeInferenceContextVectorFromSize(context, kUnknown));
  api().ShapeInferenceContextConcatenateShapes(context, rows.get(), row.get(), result.get(), status);
  if (ok(status)) api().ShapeInferenceContextSetOutput(context, index, result.get(), status);
}

}  // namespace

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  int64_t count = api().ShapeInferenceContextNumInputs(context);
  for (int i = 0; i < count && ok(status); i++) {
    Shape input(api().NewShapeHandle());
    api().ShapeInferenceContextGetInput(context, i, input.get(), status);
    if (ok(status)) api().ShapeInferenceContextSetOutput(context, i, input.get(), status);
  }
}

void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  int64_t count = api().ShapeInferenceContextNumInputs(context);
  for (int i = 0; i < count && ok(status); i++) rows_unknown(context, i, status);
}

void unknown_rows_and_splits(TF_ShapeInferenceContext* context, TF_Status* status) {
  rows_unknown(context, 0, status);
  if (!ok(status)) return;
  Shape splits(api().ShapeInferenceContextVectorFromSize(context, kUnknown));
  api().ShapeInferenceContextSetOutput(context, 1, splits.get(), status);
}

void scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  Shape shape(api().ShapeInferenceContextScalar(context));
  api().ShapeInferenceContextSetOutput(context, 0, shape.get(), status);
}

}  // namespace hvd::tensorflow
