// What all users of OpenSSL share. It is started in this process without the host's openssl.cnf, which may name modules
// of another version, and without a clean-up at exit, which would pull it from under threads that still run.
// Thread rule: any thread.
#pragma once

namespace hvd {

// Called before its first use; any number of times.
void prepare_openssl();

// What ends an object of OpenSSL: std::unique_ptr<X509, Release<::X509_free>>.
template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};

}  // namespace hvd
