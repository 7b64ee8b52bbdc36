// How OpenSSL is started in this process: without the host's openssl.cnf, which may name modules of another version,
// and without a clean-up at exit, which would pull it from under threads that still run. Called before its first use;
// any number of times. Thread rule: any thread.
#pragma once

namespace hvd {

void prepare_openssl();

}  // namespace hvd
