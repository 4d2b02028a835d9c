// CUDA's runtime as far as runtime/comm/nccl, runtime/cuda/cuda_capture and event_marks use it, on the host. Streams that are made here are
// threads. Rules of stream capture that a GPU enforces are enforced: see refuse() and the errors returned.
//
// FAKE_CUDA_ERROR=N makes the N-th recording of an event fail as a broken card would; FAKE_CUDA_BUSY=N has the first N questions whether a
// stream is done answered with "not yet".

#include "tests/runtime/comm/nccl/fake_cuda.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <cublasLt.h>

namespace {

using State = std::shared_ptr<std::atomic<bool>>;

void wait_for(const State& state) {
    while (!state->load()) std::this_thread::sleep_for(std::chrono::microseconds{50});
}

struct FakeEvent {
    std::mutex mutex;
    State state = std::make_shared<std::atomic<bool>>(true);
    bool captured = false;
    std::chrono::steady_clock::time_point recorded;  ///< on the device's stream, whose work is done when it is called

    State now() {
        const std::scoped_lock lock(mutex);
        return state;
    }
    void become(State other, bool inside_capture) {
        const std::scoped_lock lock(mutex);
        state = std::move(other);
        captured = inside_capture;
    }
    bool is_captured() {
        const std::scoped_lock lock(mutex);
        return captured;
    }
};

class FakeStream {
public:
    FakeStream() : thread_([this] { run(); }) {}
    ~FakeStream() {
        put(nullptr);
        thread_.join();
    }
    FakeStream(const FakeStream&) = delete;
    FakeStream& operator=(const FakeStream&) = delete;

    void put(std::function<void()> work) {
        {
            const std::scoped_lock lock(mutex_);
            work_.push_back(std::move(work));
        }
        changed_.notify_all();
    }
    bool idle() {
        const std::scoped_lock lock(mutex_);
        return work_.empty();
    }

private:
    void run() {
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return !work_.empty(); });
            const auto next = work_.front();
            if (!next) return;
            lock.unlock();
            next();
            lock.lock();
            work_.pop_front();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
    std::thread thread_;
};

FakeStream* of(cudaStream_t stream) {
    return reinterpret_cast<FakeStream*>(stream);
}
FakeEvent* of(cudaEvent_t event) {
    return reinterpret_cast<FakeEvent*>(event);
}

constexpr std::int64_t kNodeBytes = 50'000;
std::atomic<std::int64_t> graph_bytes = 0, operations = 0;

/// Calls that a launch makes again, in the order of the capture: each on its stream, the device's being the launch's thread.
struct FakeGraph {
    std::vector<std::function<void()>> calls;
    std::size_t nodes = 0;  ///< kernels, copies and operations; not the events between them
    std::vector<std::function<void()>> gone;

    ~FakeGraph() {
        for (const auto& each : gone) each();
    }
};
using SharedGraph = std::shared_ptr<FakeGraph>;

SharedGraph& of(cudaGraph_t graph) {
    return *reinterpret_cast<SharedGraph*>(graph);
}
SharedGraph& of(cudaGraphExec_t graph) {
    return *reinterpret_cast<SharedGraph*>(graph);
}

/// A capture of the device's stream, and of those that joined it.
struct Capture {
    struct Recorded {
        std::shared_ptr<FakeEvent> event;
        cudaStream_t stream;
        int operations;
    };
    SharedGraph graph = std::make_shared<FakeGraph>();
    std::map<cudaStream_t, int> operations{{nullptr, 0}};  ///< of each stream
    std::map<cudaStream_t, int> joined;                    ///< of those, how many the device's stream waits for
    std::map<FakeEvent*, Recorded> events;
};
thread_local std::unique_ptr<Capture> capture;

bool is_captured(cudaStream_t stream) {
    return capture != nullptr && capture->operations.contains(stream);
}

/// As CUDA keeps it for each thread: what a launch asks for behind itself (runtime/cuda/launcher.cuh), whoever made it.
thread_local cudaError_t last_error = cudaSuccess;

void expect_no_error() {
    if (last_error != cudaSuccess) mgplan::tests::refuse("an error of an earlier call was left for the next launch of its thread");
}

void expect_no_capture(const char* call) {
    if (capture != nullptr) mgplan::tests::refuse(call);
}

/// The last graph that was launched; of the rank's thread.
thread_local State launched_graph;

FakeStream& graph_runner() {
    static auto* const runner = new FakeStream;
    return *runner;
}

/// `launched`: what an event of the device's stream stands behind.
void record_now(FakeEvent& event, cudaStream_t stream, const State& launched) {
    const State state = stream == nullptr && launched != nullptr ? launched : std::make_shared<std::atomic<bool>>(false);
    event.become(state, false);
    event.recorded = std::chrono::steady_clock::now();
    if (stream != nullptr) {
        of(stream)->put([state] { *state = true; });
    } else if (launched == nullptr) {
        *state = true;
    }
}

void wait_now(FakeEvent& event, cudaStream_t stream) {
    const State state = event.now();
    if (stream == nullptr) {
        wait_for(state);
    } else {
        of(stream)->put([state] { wait_for(state); });
    }
}

}  // namespace

namespace mgplan::tests {

void refuse(const char* what) {
    std::fprintf(stderr, "fake CUDA: %s\n", what);
    std::_Exit(70);
}

bool captures() {
    return capture != nullptr;
}

void wait_for_graphs() {
    if (launched_graph != nullptr) wait_for(std::exchange(launched_graph, nullptr));
}

void do_on_device(std::function<void()> work) {
    expect_no_error();
    if (capture != nullptr) {
        ++capture->graph->nodes;
        capture->graph->calls.push_back(std::move(work));
    } else {
        wait_for_graphs();
        work();
    }
}

std::int64_t bytes_of_graphs() {
    return graph_bytes;
}

std::int64_t captured_operations() {
    return operations;
}

}  // namespace mgplan::tests

extern "C" {
cudaError_t cudaSetDevice(int /*device*/) {
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
    expect_no_capture("cudaMalloc while a stream is captured");
    *memory = std::malloc(bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    expect_no_capture("cudaFree while a stream is captured");
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
    expect_no_capture("cudaMemset while a stream is captured");
    std::memset(memory, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int /*flags*/) {
    expect_no_capture("cudaStreamCreateWithFlags while a stream is captured");
    *stream = reinterpret_cast<cudaStream_t>(new FakeStream);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    expect_no_error();
    delete of(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    expect_no_capture("cudaStreamQuery while a stream is captured");
    static const char* const busy = std::getenv("FAKE_CUDA_BUSY");
    static std::atomic<int> left = busy == nullptr ? 0 : std::atoi(busy);
    return left-- <= 0 && of(stream)->idle() ? cudaSuccess : last_error = cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    expect_no_capture("cudaStreamSynchronize while a stream is captured");
    if (stream != nullptr) mgplan::tests::refuse("cudaStreamSynchronize of another stream than the device's");
    mgplan::tests::wait_for_graphs();
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int /*flags*/) {
    if (capture == nullptr || !of(event)->is_captured()) {
        // Work outside a capture and work inside must not wait for each other.
        if (of(event)->is_captured()) return cudaErrorCapturedEvent;
        if (is_captured(stream)) return cudaErrorStreamCaptureIsolation;
        if (stream == nullptr) mgplan::tests::wait_for_graphs();
        wait_now(*of(event), stream);
        return cudaSuccess;
    }
    const auto found = capture->events.find(of(event));
    if (found == capture->events.end()) return cudaErrorCapturedEvent;
    const Capture::Recorded& recorded = found->second;
    capture->operations.try_emplace(stream, 0);
    if (stream == nullptr) capture->joined[recorded.stream] = recorded.operations;
    capture->graph->calls.emplace_back([node = recorded.event, stream] { wait_now(*node, stream); });
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int /*flags*/) {
    *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (capture != nullptr) capture->events.erase(of(event));
    delete of(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    static std::atomic<int> calls = 0;
    static const char* const fails = std::getenv("FAKE_CUDA_ERROR");
    if (fails != nullptr && ++calls == std::atoi(fails)) return cudaErrorECCUncorrectable;
    if (!is_captured(stream)) {
        record_now(*of(event), stream, launched_graph);
        return cudaSuccess;
    }
    const auto node = std::make_shared<FakeEvent>();
    of(event)->become(of(event)->now(), true);
    capture->events[of(event)] = {node, stream, capture->operations[stream]};
    capture->graph->calls.emplace_back([node, stream] { record_now(*node, stream, nullptr); });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    expect_no_capture("cudaEventQuery while a stream is captured");
    if (of(event)->is_captured()) mgplan::tests::refuse("cudaEventQuery of an event that was recorded in a capture");
    return of(event)->now()->load() ? cudaSuccess : last_error = cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    expect_no_capture("cudaEventSynchronize while a stream is captured");
    if (of(event)->is_captured()) mgplan::tests::refuse("cudaEventSynchronize of an event that was recorded in a capture");
    wait_for(of(event)->now());
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    if (of(begin)->is_captured() || of(end)->is_captured()) return cudaErrorInvalidResourceHandle;
    *milliseconds = std::chrono::duration<float, std::milli>(of(end)->recorded - of(begin)->recorded).count();
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    const auto put = [stream, function, data] { of(stream)->put([function, data] { function(data); }); };
    if (is_captured(stream)) {
        ++operations;
        ++capture->operations[stream];
        ++capture->graph->nodes;
        capture->graph->calls.emplace_back(put);
    } else {
        put();
    }
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    *status = is_captured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    expect_no_capture("a capture inside a capture");
    // The watchdog asks for events meanwhile, from its own thread.
    if (stream != nullptr || mode != cudaStreamCaptureModeThreadLocal) return cudaErrorInvalidValue;
    capture = std::make_unique<Capture>();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t /*stream*/, cudaGraph_t* graph) {
    if (capture == nullptr) return cudaErrorInvalidValue;
    const auto ended = std::move(capture);
    for (const auto& [stream, issued] : ended->operations) {
        if (stream != nullptr && ended->joined[stream] < issued) return cudaErrorStreamCaptureUnjoined;
    }
    *graph = reinterpret_cast<cudaGraph_t>(new SharedGraph(ended->graph));
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* /*nodes*/, size_t* count) {
    *count = of(graph)->nodes;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete &of(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long /*flags*/) {
    graph_bytes += kNodeBytes * static_cast<std::int64_t>(of(graph)->nodes);
    *executable = reinterpret_cast<cudaGraphExec_t>(new SharedGraph(of(graph)));
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t /*executable*/, cudaStream_t /*stream*/) {
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    expect_no_capture("cudaGraphLaunch while a stream is captured");
    if (stream != nullptr) mgplan::tests::refuse("cudaGraphLaunch on another stream than the device's");
    launched_graph = std::make_shared<std::atomic<bool>>(false);
    graph_runner().put([graph = of(executable), done = launched_graph] {
        for (const auto& call : graph->calls) call();
        *done = true;
    });
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    graph_bytes -= kNodeBytes * static_cast<std::int64_t>(of(executable)->nodes);
    delete &of(executable);
    return cudaSuccess;
}
/// For the fake NCCL: gone(data) when the graph that is captured, and all that were made of it, are destroyed. CUDA does so by
/// cudaGraphRetainUserObject().
void fake_cuda_graph_holds(void (*gone)(void*), void* data) {
    capture->graph->gone.emplace_back([gone, data] { gone(data); });
}
const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaErrorECCUncorrectable:
            return "cudaErrorECCUncorrectable";
        case cudaErrorStreamCaptureIsolation:
            return "cudaErrorStreamCaptureIsolation";
        case cudaErrorStreamCaptureUnjoined:
            return "cudaErrorStreamCaptureUnjoined";
        case cudaErrorCapturedEvent:
            return "cudaErrorCapturedEvent";
        default:
            return "an error";
    }
}
const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorECCUncorrectable ? "uncorrectable ECC error encountered" : "an error of the fake";
}
const char* cublasLtGetStatusName(cublasStatus_t /*status*/) {
    return "";
}
const char* cublasLtGetStatusString(cublasStatus_t /*status*/) {
    return "";
}
}
