#pragma once
// Libraries that the CUDA module can do without.

#include <string>

#include "plan/text/errors.hpp"

/// A struct of a library's functions by their own names, which LibraryFunctions fills. `list`: a macro that names each of them to
/// the macro that it is given.
// clang-format off
#define MGPLAN_LIBRARY_FUNCTIONS(type, list) \
    struct type { \
        list(MGPLAN_LIBRARY_MEMBER) \
        template <class Find> \
        void take(const Find& find) { list(MGPLAN_LIBRARY_TAKE) } \
    }
// clang-format on
#define MGPLAN_LIBRARY_MEMBER(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a name is declared
#define MGPLAN_LIBRARY_TAKE(name) name = reinterpret_cast<decltype(&::name)>(find(#name));

/// "libnccl.so.2" of "nccl" and a macro for 2.
#define MGPLAN_LIBRARY_FILE(name, major) "lib" name ".so." MGPLAN_LIBRARY_TEXT(major)
#define MGPLAN_LIBRARY_TEXT(value) MGPLAN_LIBRARY_TEXT_OF(value)
#define MGPLAN_LIBRARY_TEXT_OF(value) #value

namespace mgplan::runtime::cuda {

/// A shared library that is opened when it is first needed, and never closed. It is looked for as if the module were linked
/// with it: LD_LIBRARY_PATH, the module's RUNPATH, the system's folders.
class LazyLibrary {
public:
    /// title: "NCCL"; file: "libnccl.so.2".
    LazyLibrary(const char* title, const char* file);

    /// The function's address; nullptr if there is none, with the reason in unavailable().
    [[nodiscard]] void* find(const char* function);
    /// Names the missing file, or the first function that was not found: "NCCL cannot be loaded (…)". Empty if nothing was missing yet.
    [[nodiscard]] const std::string& unavailable() const { return unavailable_; }

private:
    const char* title_;
    const char* file_;
    void* library_ = nullptr;
    std::string unavailable_;
};

/// A library's functions, all loaded at construction. To be used as a static in a function, so that they are loaded at their first use.
template <class Functions>
class LibraryFunctions {
public:
    LibraryFunctions(const char* title, const char* file) {
        LazyLibrary library(title, file);
        functions_.take([&library](const char* function) { return library.find(function); });
        unavailable_ = library.unavailable();
    }

    [[nodiscard]] const std::string& unavailable() const { return unavailable_; }
    /// Requires that unavailable() is empty.
    [[nodiscard]] const Functions& functions() const {
        MGPLAN_ASSERT(unavailable_.empty(), "the library is there");
        return functions_;
    }

private:
    Functions functions_;
    std::string unavailable_;
};

}  // namespace mgplan::runtime::cuda
