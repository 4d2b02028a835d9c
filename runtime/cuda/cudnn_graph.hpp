#pragma once
// A little of cuDNN's graph API (backend descriptors): tensors, pointwise operations, products, reductions, and a plan for
// all of them as one kernel. https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/text/errors.hpp"

namespace mgplan::runtime::cuda {

/// A failed call of cuDNN, by this thread's rank. failure() is the text that ranks share, which does not name that rank.
class CudnnError : public RunError {
public:
    CudnnError(int rank, const std::string& failure);
    /// The text of what() without the rank.
    [[nodiscard]] const std::string& failure() const { return *failure_; }

private:
    std::shared_ptr<const std::string> failure_;  ///< copies of an exception must not throw
};

/// Throws CudnnError: the call, cuDNN's own words and the place.
[[noreturn]] void throw_cudnn_error(cudnnStatus_t status, const char* call, const char* file, int line);

#define MGPLAN_CUDNN(call)                                                                              \
    do {                                                                                                \
        const cudnnStatus_t mgplan_cudnn_status = (call);                                               \
        if (mgplan_cudnn_status != CUDNN_STATUS_SUCCESS) {                                              \
            ::mgplan::runtime::cuda::throw_cudnn_error(mgplan_cudnn_status, #call, __FILE__, __LINE__); \
        }                                                                                               \
    } while (false)

using Dimensions = std::array<std::int64_t, 4>;

/// A tensor of a graph. Virtual ones live inside the kernel.
struct GraphTensor {
    cudnnBackendDescriptor_t descriptor = nullptr;
    std::int64_t id = 0;
    Dimensions sizes{}, strides{};
};

/// Owns its descriptors. Built once, run many times.
class CudnnGraph {
public:
    explicit CudnnGraph(cudnnHandle_t handle) : handle_(handle) {}
    ~CudnnGraph();
    CudnnGraph(const CudnnGraph&) = delete;
    CudnnGraph& operator=(const CudnnGraph&) = delete;

    /// In memory, at an address given to run(), a multiple of 16.
    GraphTensor stored(const Dimensions& sizes, const Dimensions& strides, cudnnDataType_t type);
    /// A value given to run() by its address in host memory.
    GraphTensor scalar();
    GraphTensor inner(const Dimensions& sizes, cudnnDataType_t type = CUDNN_DATA_FLOAT);
    GraphTensor inner(const Dimensions& sizes, const Dimensions& strides, cudnnDataType_t type);

    void pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& y);
    void pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& b, const GraphTensor& y);
    void matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c);
    void reduce(cudnnReduceTensorOp_t operation, const GraphTensor& x, const GraphTensor& y);
    void reshape(const GraphTensor& x, const GraphTensor& y);
    /// scores (batch, heads, rows, columns) where row >= column, else `hidden`.
    GraphTensor causal(const GraphTensor& scores, const GraphTensor& hidden);

    /// Takes the heuristics' first engine that can be compiled and needs at most `most_workspace_bytes`; returns false, with the reason
    /// in `refusal`, if there is none.
    [[nodiscard]] bool build(std::int64_t most_workspace_bytes, std::string& refusal);
    /// The plan as cuDNN writes it (JSON, kernels included), from which read() makes it again; empty where cuDNN does not.
    [[nodiscard]] std::string written() const;
    /// Reads a plan of the same operations that another handle on such a card has written, in place of build(): nothing is compiled.
    /// Returns false if cuDNN does not take it or it needs more than `most_workspace_bytes`.
    [[nodiscard]] bool read(const std::string& written, std::int64_t most_workspace_bytes);
    [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
    /// Runs the plan. `memory`: of each stored tensor and scalar of `ids`, which are the same at all calls. Addresses are set in cuDNN
    /// only if they differ from the last call's.
    void run(std::span<const std::int64_t> ids, std::span<void* const> memory, void* workspace);
    /// Makes the next run set all addresses again: the value at a scalar's address has changed.
    void forget_addresses();

private:
    void tell_addresses(std::span<const std::int64_t> ids, std::span<void* const> memory, void* workspace);
    cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);
    /// Takes a finalized plan where its workspace is no larger; bytes that it wants.
    std::int64_t take(cudnnBackendDescriptor_t plan, std::int64_t most_workspace_bytes);
    GraphTensor tensor(const Dimensions& sizes, const Dimensions& strides, cudnnDataType_t type, bool is_virtual, bool by_value);
    void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, std::int64_t axis, const GraphTensor& x, const GraphTensor* b,
                   const GraphTensor* choice, const GraphTensor& y);

    cudnnHandle_t handle_;
    std::vector<cudnnBackendDescriptor_t> all_, operations_;
    cudnnBackendDescriptor_t plan_ = nullptr;
    cudnnBackendDescriptor_t addresses_ = nullptr;  ///< a variant pack of the last run's
    std::vector<void*> told_;                       ///< the addresses in it, the workspace last
    std::int64_t workspace_bytes_ = 0;
    std::int64_t ids_ = 0;
};

/// Strides of a dense tensor, the last dimension fastest.
[[nodiscard]] Dimensions dense(const Dimensions& sizes);

}  // namespace mgplan::runtime::cuda
