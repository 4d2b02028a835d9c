#pragma once
// Libraries that the CUDA module can do without.

#include <string>

namespace mgplan::runtime::cuda {

/// A shared library that is opened when it is first needed, and never closed. It is looked for as if the module were linked
/// with it: LD_LIBRARY_PATH, the module's RUNPATH, the system's folders.
class LazyLibrary {
public:
    /// title: "NCCL"; file: "libnccl.so.2".
    LazyLibrary(const char* title, const char* file);

    /// The function's address; nullptr where there is none, and unavailable() then says why.
    [[nodiscard]] void* find(const char* function);
    /// What is missing, the file or the first function that was not found: "NCCL cannot be loaded (…)". Empty so far.
    [[nodiscard]] const std::string& unavailable() const { return unavailable_; }

private:
    const char* title_;
    const char* file_;
    void* library_ = nullptr;
    std::string unavailable_;
};

}  // namespace mgplan::runtime::cuda
