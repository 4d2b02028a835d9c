#include "runtime/cuda/lazy_library.hpp"

#include <dlfcn.h>

#include <fmt/core.h>

namespace mgplan::runtime::cuda {

LazyLibrary::LazyLibrary(const char* title, const char* file) : title_(title), file_(file), library_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ != nullptr) return;
    const char* const why = dlerror();
    unavailable_ = fmt::format("{} cannot be loaded ({})", title_, why != nullptr ? why : file_);
}

void* LazyLibrary::find(const char* function) {
    void* const found = library_ != nullptr ? dlsym(library_, function) : nullptr;
    if (found == nullptr && unavailable_.empty())
        unavailable_ = fmt::format("the {} in {} is too old: it has no {}", title_, file_, function);
    return found;
}

}  // namespace mgplan::runtime::cuda
