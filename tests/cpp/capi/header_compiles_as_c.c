/* The public header is C99: this file is compiled with -std=c99 -pedantic and used from C. */
#include <string.h>

#include "horovod/horovod.h"

int hvd_test_header_from_c(void) {
  hvd_tensor tensor;
  hvd_request request;
  hvd_submit_options options;
  memset(&tensor, 0, sizeof tensor);
  memset(&request, 0, sizeof request);
  memset(&options, 0, sizeof options);
  tensor.struct_size = sizeof tensor;
  request.struct_size = sizeof request;
  options.struct_size = sizeof options;
  return (int)(hvd_abi_version() >> 16) + (int)(tensor.struct_size + request.struct_size + options.struct_size > 0);
}
