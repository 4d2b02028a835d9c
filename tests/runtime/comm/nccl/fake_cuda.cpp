// CUDA's runtime as far as runtime/comm/nccl uses it, on the host, and a device of host memory that computes as the CPU
// does. Streams that are made here are threads; the device's own, nullptr, is the caller: what it waits for, the caller waits for.
//
// FAKE_CUDA_ERROR=N makes the N-th recording of an event fail as a broken card would.

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <cublasLt.h>

#include "runtime/comm/reduce.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace {

using State = std::shared_ptr<std::atomic<bool>>;

void wait_for(const State& state) {
    while (!state->load()) std::this_thread::sleep_for(std::chrono::microseconds{50});
}

struct FakeEvent {
    std::mutex mutex;
    State state = std::make_shared<std::atomic<bool>>(true);

    State now() {
        const std::scoped_lock lock(mutex);
        return state;
    }
    State again() {
        const std::scoped_lock lock(mutex);
        return state = std::make_shared<std::atomic<bool>>(false);
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

}  // namespace

extern "C" {
cudaError_t cudaSetDevice(int /*device*/) {
    return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
    *memory = std::malloc(bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
    std::memset(memory, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int /*flags*/) {
    *stream = reinterpret_cast<cudaStream_t>(new FakeStream);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete of(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return of(stream)->idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int /*flags*/) {
    const State state = of(event)->now();
    if (stream == nullptr) {
        wait_for(state);
    } else {
        of(stream)->put([state] { wait_for(state); });
    }
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int /*flags*/) {
    *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete of(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    static std::atomic<int> calls = 0;
    static const char* const fails = std::getenv("FAKE_CUDA_ERROR");
    if (fails != nullptr && ++calls == std::atoi(fails)) return cudaErrorECCUncorrectable;
    const State state = of(event)->again();
    if (stream == nullptr) {
        *state = true;
    } else {
        of(stream)->put([state] { *state = true; });
    }
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return of(event)->now()->load() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    of(stream)->put([function, data] { function(data); });
    return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorECCUncorrectable ? "cudaErrorECCUncorrectable" : "an error";
}
const char* cudaGetErrorString(cudaError_t /*error*/) {
    return "uncorrectable ECC error encountered";
}
const char* cublasLtGetStatusName(cublasStatus_t /*status*/) {
    return "";
}
const char* cublasLtGetStatusString(cublasStatus_t /*status*/) {
    return "";
}
}

namespace mgplan::runtime::cuda {

struct CublasLt::State {};
CublasLt::~CublasLt() = default;

namespace {

/// Scalings that were captured, and what graphs of them take of the card's memory, which this process alone uses.
thread_local std::int64_t scalings = 0;
std::atomic<std::int64_t> graph_bytes = 0;
constexpr std::int64_t kFreeBytes = std::int64_t{1} << 36, kScalingBytes = 50'000;

class FakeGraph final : public model::CapturedWork {
public:
    explicit FakeGraph(std::int64_t nodes) : nodes_(nodes) { graph_bytes += kScalingBytes * nodes; }
    ~FakeGraph() override { graph_bytes -= kScalingBytes * nodes_; }
    void launch() override {}
    std::int64_t nodes() const override { return nodes_; }

private:
    std::int64_t nodes_;
};

const model::KernelTable& fake_kernels() {
    static const model::KernelTable table = [] {
        model::KernelTable made = cpu::kernels();
        made.scale = [](model::Device& device, const model::ScalarArguments& arguments) {
            ++scalings;
            cpu::kernels().scale(device, arguments);
        };
        return made;
    }();
    return table;
}

}  // namespace

void CudaCapture::begin() {
    scalings = 0;
}
std::unique_ptr<model::CapturedWork> CudaCapture::end() {
    return std::make_unique<FakeGraph>(scalings);
}
void CudaCapture::abandon() noexcept {}

CudaDevice::CudaDevice(int ordinal, int rank, const model::KernelTraits& traits, const ArenaScript* script)
    : CudaDeviceInterface(traits, std::make_unique<PoolAllocator>(), &fake_kernels()),
      ordinal_(ordinal),
      rank_(rank),
      measured_(static_cast<MeasuredAllocator&>(Device::allocator())),
      pool_(static_cast<PoolAllocator*>(&measured_)) {
    MGPLAN_ASSERT(script == nullptr, "the fake card has a pool alone");
    reads_host_memory_ = true;  // it is the host's
    capture_ = std::make_unique<CudaCapture>(nullptr);
    name_rank_of_this_thread(rank);
}
CudaDevice::~CudaDevice() {
    std::free(uncounted_);
}
const std::byte* CudaDevice::uncounted(std::span<const std::byte> bytes) {
    uncounted_ = std::malloc(bytes.size());
    upload(uncounted_, bytes.data(), std::ssize(bytes));
    return static_cast<const std::byte*>(uncounted_);
}
void CudaDevice::synchronize() {}
std::unique_ptr<model::Stopwatch> CudaDevice::make_stopwatch() {
    return model::Device::make_stopwatch();
}
std::int64_t CudaDevice::free_bytes() {
    return kFreeBytes - graph_bytes;
}
void CudaDevice::copy_on_device(void* to, const void* from, std::int64_t bytes) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
}
void CudaDevice::zero_memory(void* memory, std::int64_t bytes) {
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
}
void CudaDevice::upload(void* to, const void* from, std::int64_t bytes) {
    copy_on_device(to, from, bytes);
}
void CudaDevice::download(void* to, const void* from, std::int64_t bytes) {
    copy_on_device(to, from, bytes);
}
void CudaDevice::reduce(Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> outputs, std::int64_t begin, std::int64_t end) {
    reduce_in_order(dtype, reduction, inputs, outputs, begin, end);
}

}  // namespace mgplan::runtime::cuda
