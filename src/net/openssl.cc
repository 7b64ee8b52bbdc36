#include "net/openssl.h"

#include <openssl/crypto.h>

namespace hvd {

void prepare_openssl() { ::OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr); }

}  // namespace hvd
