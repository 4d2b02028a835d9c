#pragma once
// Loads the CUDA module at run time, for programs that must also start without a GPU.

#include <string>

#include "plan/text/errors.hpp"
#include "runtime/cuda_loader/cuda_module.hpp"

namespace mgplan::runtime {

/// No GPU can be used here; the message is one sentence that says why and what would help.
class CudaUnavailable : public RunError {
public:
    using RunError::RunError;
};

/// Loads libmgplan_cuda.so once and keeps it. The environment variable MGPLAN_CUDA_MODULE gives its path; without it the program's
/// folder and ../lib from there are searched. Throws CudaUnavailable, also where it loads and finds no driver or
/// card. Any thread may call it. Sets CUDA_DEVICE_MAX_CONNECTIONS first, which CUDA reads once, where it is not set
/// (hardware_queues.hpp).
[[nodiscard]] CudaModule& cuda_module();

/// Loads the module from a given file, again on each call, without the check for driver and card.
[[nodiscard]] CudaModule& load_cuda_module(const std::string& file);

}  // namespace mgplan::runtime
