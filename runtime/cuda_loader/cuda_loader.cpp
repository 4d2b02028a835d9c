#include "runtime/cuda_loader/cuda_loader.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <vector>

#include <fmt/core.h>

#include "runtime/cuda_loader/hardware_queues.hpp"

namespace mgplan::runtime {
namespace {

std::vector<std::filesystem::path> candidates() {
    if (const char* const named = std::getenv("MGPLAN_CUDA_MODULE"); named != nullptr && *named != '\0') return {named};
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return {kCudaModuleFile};
    const auto folder = program.parent_path();
    const auto library = (folder / ".." / "lib").lexically_normal();
    return {folder / kCudaModuleFile, library / "mgplan" / kCudaModuleFile, library / kCudaModuleFile};
}

/// Sets the variable, which CUDA reads when it first uses the card, unless the user has set it. Of eight queues, CUDA's default, some
/// of a rank's streams share one, where a stream that waits for a partner can hold up another.
void ask_for_hardware_queues() {
    static_cast<void>(::setenv(kQueuesVariable, kHardwareQueues, 0));
}

}  // namespace

CudaModule& load_cuda_module(const std::string& file) {
    ask_for_hardware_queues();
    // Never closed: it holds devices and the code that frees their tensors.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const why = dlerror();
        throw CudaUnavailable(
            fmt::format("the CUDA module {} cannot be loaded ({}); put cuBLASLt of the toolkit where the loader finds it "
                        "(LD_LIBRARY_PATH), or use the CPU",
                        file, why != nullptr ? why : "no reason given"));
    }
    // POSIX: a symbol's address may be taken as a function's.
    const auto entry = reinterpret_cast<CudaModuleEntry>(dlsym(library, kCudaModuleEntry));
    CudaModule* const module = entry != nullptr ? entry(cuda_interface().c_str()) : nullptr;
    if (module == nullptr) {
        throw CudaUnavailable(fmt::format("the CUDA module {} is of another build than this program ({}); build and install both together",
                                          file, cuda_interface()));
    }
    return *module;
}

CudaModule& cuda_module() {
    static std::mutex mutex;
    static CudaModule* loaded = nullptr;
    const std::scoped_lock lock(mutex);
    if (loaded == nullptr) {
        const auto files = candidates();
        for (const auto& file : files) {
            std::error_code error;
            if (std::filesystem::exists(file, error)) {
                loaded = &load_cuda_module(file.string());
                break;
            }
        }
        if (loaded == nullptr) {
            throw CudaUnavailable(
                fmt::format("this build has no CUDA module ({} is not there); build it where the CUDA toolkit is "
                            "installed, name its file in MGPLAN_CUDA_MODULE, or use the CPU",
                            files.back().string()));
        }
    }
    if (const std::string why = loaded->unavailable(); !why.empty()) throw CudaUnavailable(why);
    return *loaded;
}

}  // namespace mgplan::runtime
