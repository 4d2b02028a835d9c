#include "runtime/cuda/cuda_capture.hpp"

#include <cstddef>

#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {
namespace {

/// A recorded graph until it is instantiated.
class Template {
public:
    Template() = default;
    Template(const Template&) = delete;
    Template& operator=(const Template&) = delete;
    ~Template() {
        if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
    }
    [[nodiscard]] cudaGraph_t* place() { return &graph_; }
    [[nodiscard]] cudaGraph_t get() const { return graph_; }

private:
    cudaGraph_t graph_ = nullptr;
};

class Graph final : public model::CapturedWork {
public:
    Graph(cudaStream_t stream, cudaGraph_t recorded, std::size_t nodes) : stream_(stream), nodes_(static_cast<std::int64_t>(nodes)) {
        MGPLAN_CUDA(cudaGraphInstantiateWithFlags(&executable_, recorded, 0));
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    ~Graph() override {
        // A launch may still run. Errors were reported by the call that met them; a destructor cannot report them.
        static_cast<void>(cudaStreamSynchronize(stream_));
        static_cast<void>(cudaGraphExecDestroy(executable_));
    }

    /// Its memory on the card is there before the first launch.
    void upload() { MGPLAN_CUDA(cudaGraphUpload(executable_, stream_)); }
    void launch() override { MGPLAN_CUDA(cudaGraphLaunch(executable_, stream_)); }
    [[nodiscard]] std::int64_t nodes() const override { return nodes_; }

private:
    cudaStream_t stream_;
    cudaGraphExec_t executable_ = nullptr;
    std::int64_t nodes_;
};

}  // namespace

void CudaCapture::begin() {
    MGPLAN_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
}

std::unique_ptr<model::CapturedWork> CudaCapture::end() {
    Template recorded;
    MGPLAN_CUDA(cudaStreamEndCapture(stream_, recorded.place()));
    std::size_t nodes = 0;
    MGPLAN_CUDA(cudaGraphGetNodes(recorded.get(), nullptr, &nodes));
    if (nodes == 0) return nullptr;
    auto graph = std::make_unique<Graph>(stream_, recorded.get(), nodes);
    graph->upload();
    graph->launch();
    return graph;
}

void CudaCapture::abandon() noexcept {
    Template recorded;
    static_cast<void>(cudaStreamEndCapture(stream_, recorded.place()));
    static_cast<void>(cudaGetLastError());  // the capture that was given up is no error of later calls
}

}  // namespace mgplan::runtime::cuda
