#include "runtime/cuda/check.hpp"

#include <string>
#include <string_view>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::runtime::cuda {
namespace {

thread_local int this_rank = -1;

std::string whose() {
    return this_rank < 0 ? std::string("the CUDA module") : fmt::format("rank {}", this_rank);
}

/// From the project's folder on.
std::string_view shortened(std::string_view file) {
    const auto at = file.rfind("runtime/");
    return at == std::string_view::npos ? file : file.substr(at);
}

}  // namespace

void name_rank_of_this_thread(int rank) {
    this_rank = rank;
}

int rank_of_this_thread() {
    return this_rank;
}

void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line) {
    // Launch and memory errors stay with the context: later calls report the same one, so only the first is the cause.
    throw RunError(fmt::format("{}: {} failed with {} ({}) at {}:{}", whose(), call, cudaGetErrorName(error), cudaGetErrorString(error),
                               shortened(file), line));
}

void throw_cublas_error(cublasStatus_t status, const char* call, const char* file, int line) {
    throw RunError(fmt::format("{}: {} failed with {} ({}) at {}:{}", whose(), call, cublasLtGetStatusName(status),
                               cublasLtGetStatusString(status), shortened(file), line));
}

}  // namespace mgplan::runtime::cuda
