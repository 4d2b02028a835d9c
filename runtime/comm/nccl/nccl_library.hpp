#pragma once
// NCCL's functions, taken from the library when they are first needed: the CUDA module loads where there is none.

#include <nccl.h>

#include <string>

#include "runtime/cuda/lazy_library.hpp"

namespace mgplan::runtime::cuda {

// clang-format off
#define MGPLAN_NCCL_FUNCTIONS(each) \
    each(ncclAllGather) each(ncclAllReduce) each(ncclBroadcast) each(ncclCommAbort) each(ncclCommDestroy) \
    each(ncclCommFinalize) each(ncclCommGetAsyncError) each(ncclCommInitRankConfig) each(ncclCommSplit) \
    each(ncclGetErrorString) each(ncclGetLastError) each(ncclGetUniqueId) each(ncclGetVersion) each(ncclGroupEnd) \
    each(ncclGroupStart) each(ncclRecv) each(ncclReduce) each(ncclReduceScatter) each(ncclSend)
// clang-format on

MGPLAN_LIBRARY_FUNCTIONS(NcclFunctions, MGPLAN_NCCL_FUNCTIONS);

/// Reason why NCCL cannot be used here; empty if it can. Any thread.
[[nodiscard]] const std::string& nccl_unavailable();

/// Requires that nccl_unavailable() is empty.
[[nodiscard]] const NcclFunctions& nccl();

}  // namespace mgplan::runtime::cuda
