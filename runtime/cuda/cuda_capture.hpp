#pragma once
// Records a GPU's stream as CUDA graphs.

#include <cuda_runtime_api.h>

#include "model/device/graph_capture.hpp"

namespace mgplan::runtime::cuda {

/// Stream capture (CUDA programming guide, "Creating a Graph Using Stream Capture"): between begin() and end() calls on the
/// stream are recorded and not run; end() instantiates the graph, uploads it and launches it, so that capturing does what
/// eager work would have done. In thread-local mode: other ranks' threads may meanwhile allocate and wait. Graphs hold
/// addresses and values alone and allocate nothing.
class CudaCapture final : public model::WorkCapture {
public:
    /// The stream must outlive it and what it recorded.
    explicit CudaCapture(cudaStream_t stream) : stream_(stream) {}

    void begin() override;
    [[nodiscard]] std::unique_ptr<model::CapturedWork> end() override;
    void abandon() noexcept override;
    [[nodiscard]] bool runs_at_once() const override { return false; }

private:
    cudaStream_t stream_;
};

}  // namespace mgplan::runtime::cuda
