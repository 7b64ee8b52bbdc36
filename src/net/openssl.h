// Common code of all users of OpenSSL. Initialises it without the host's openssl.cnf, which may name modules of another
// version, and without cleanup at exit, which would break threads that are still running. Thread rule: any thread.
#pragma once

namespace hvd {

// Call before the first use; may be called repeatedly.
void prepare_openssl();

// A deleter for OpenSSL objects: std::unique_ptr<X509, Release<::X509_free>>.
template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};

}  // namespace hvd
