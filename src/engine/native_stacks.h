// Writes the native stack of a thread into a file when the launcher sends it a signal, also while the thread holds any
// lock or hangs in a system call. Thread rule: start_native_stacks() once; the rest happens in signal handlers.
#pragma once

namespace hvd {

// From now on the signal makes a thread append its stack to the file. Returns the signal; 0: the program uses it.
int start_native_stacks(int descriptor);

}  // namespace hvd
