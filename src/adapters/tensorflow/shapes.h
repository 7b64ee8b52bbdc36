// Shape inference: what is known about a result's shape when a graph is built.
// Thread rule: pure functions of the context.
#pragma once

#include "adapters/tensorflow/tf_api.h"

namespace hvd::tensorflow {

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status);   // of every tensor
void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status);  // every tensor but its first dimension
void unknown_rows_and_splits(TF_ShapeInferenceContext* context,
                             TF_Status* status);  // and a second output, one-dimensional
void scalar(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace hvd::tensorflow
