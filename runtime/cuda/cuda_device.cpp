#include "runtime/cuda/cuda_device.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cudnn_attention.hpp"
#include "runtime/cuda/event_marks.hpp"
#include "runtime/cuda/kernels.hpp"
#include "runtime/cuda/pinned_values.hpp"

namespace mgplan::runtime::cuda {
namespace {

/// cudaMallocHost: pinned, so that copies need no staging. Copies that read or write it are waited for before it is given back.
class PinnedBlocks final : public BlockSource {
public:
    void* take(std::int64_t bytes) override {
        void* block = nullptr;
        const cudaError_t error = cudaMallocHost(&block, static_cast<std::size_t>(bytes));
        if (error == cudaSuccess) return block;
        static_cast<void>(cudaGetLastError());
        if (error == cudaErrorMemoryAllocation) return nullptr;
        throw_cuda_error(error, "cudaMallocHost", __FILE__, __LINE__);
    }
    void give_back(void* block, std::int64_t /*bytes*/) noexcept override { static_cast<void>(cudaFreeHost(block)); }
    void spoil(void* block, std::int64_t bytes) noexcept override { std::memset(block, 0xff, static_cast<std::size_t>(bytes)); }
    bool is_spoiled(const void* block, std::int64_t bytes) noexcept override {
        const auto* const values = static_cast<const unsigned char*>(block);
        return std::all_of(values, values + bytes, [](unsigned char value) { return value == 0xff; });
    }
};

BlockSource& pinned_blocks() {
    static PinnedBlocks blocks;
    return blocks;
}

const model::KernelTable& kernel_table() {
    static const model::KernelTable filled = [] {
        model::KernelTable table{};
        fill_dense_kernels(table);
        fill_flat_kernels(table);
        fill_recurrent_kernels(table);
        fill_router_kernels(table);
        return table;
    }();
    return filled;
}

/// Two events of the device's stream: what lies between them is timed by the card, without the host.
class EventStopwatch final : public model::Stopwatch {
public:
    explicit EventStopwatch(cudaStream_t stream) : stream_(stream) {
        MGPLAN_CUDA(cudaEventCreate(&begin_));
        const cudaError_t error = cudaEventCreate(&end_);
        if (error != cudaSuccess) static_cast<void>(cudaEventDestroy(begin_));
        MGPLAN_CUDA(error);
    }
    ~EventStopwatch() override {
        static_cast<void>(cudaEventDestroy(begin_));
        static_cast<void>(cudaEventDestroy(end_));
    }
    EventStopwatch(const EventStopwatch&) = delete;
    EventStopwatch& operator=(const EventStopwatch&) = delete;

    void start() override { MGPLAN_CUDA(cudaEventRecord(begin_, stream_)); }
    void stop() override { MGPLAN_CUDA(cudaEventRecord(end_, stream_)); }
    double seconds() override {
        float milliseconds = 0;
        MGPLAN_CUDA(cudaEventSynchronize(end_));
        MGPLAN_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return 1e-3 * static_cast<double>(milliseconds);
    }

private:
    cudaStream_t stream_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

std::unique_ptr<MeasuredAllocator> make_allocator(const std::shared_ptr<CardBlocks>& blocks, const ArenaScript* script) {
    std::unique_ptr<MeasuredAllocator> allocator;
    if (script != nullptr)
        allocator = std::make_unique<ArenaAllocator>(*script, *blocks);
    else
        allocator = std::make_unique<PoolAllocator>(*blocks);
    allocator->keep(blocks);
    return allocator;
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, int rank, const model::KernelTraits& traits, const ArenaScript* script, bool times_products)
    : CudaDevice(std::make_shared<CardBlocks>(ordinal), ordinal, rank, traits, script, times_products) {}

CudaDevice::CudaDevice(const std::shared_ptr<CardBlocks>& blocks, int ordinal, int rank, const model::KernelTraits& traits,
                       const ArenaScript* script, bool times_products)
    : CudaDeviceInterface(traits, make_allocator(blocks, script), &model::with_every_kernel(kernel_table())),
      ordinal_(ordinal),
      rank_(rank),
      measured_(static_cast<MeasuredAllocator&>(Device::allocator())),
      pool_(script == nullptr ? static_cast<PoolAllocator*>(&measured_) : nullptr),
      arena_(script == nullptr ? nullptr : static_cast<ArenaAllocator*>(&measured_)),
      pinned_(std::make_unique<PoolAllocator>(pinned_blocks())),
      stream_(blocks->stream()) {
    name_rank_of_this_thread(rank);
    int reads = 0;
    MGPLAN_CUDA(cudaDeviceGetAttribute(&reads, cudaDevAttrPageableMemoryAccess, ordinal_));
    reads_host_memory_ = reads != 0;
    staging_ = std::make_unique<StagingRing>(stream_);
    capture_ = std::make_unique<CudaCapture>(stream_);
    products_ = std::make_unique<CublasLt>(stream_, times_products);
    attention_ = make_cudnn_attention(stream_, ordinal_);
}

CudaDevice::~CudaDevice() {
    // Errors were reported by the call that met them; a destructor cannot report them.
    static_cast<void>(cudaSetDevice(ordinal_));
    static_cast<void>(cudaStreamSynchronize(stream_));
    if (uncounted_ != nullptr) static_cast<void>(cudaFree(uncounted_));
    attention_.reset();
    products_.reset();
}

std::int64_t CudaDevice::free_bytes() {
    synchronize();
    std::size_t free = 0, total = 0;
    MGPLAN_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(free);
}

const std::byte* CudaDevice::uncounted(std::span<const std::byte> bytes) {
    MGPLAN_ASSERT(uncounted_ == nullptr, "it is asked for once");
    MGPLAN_CUDA(cudaMalloc(&uncounted_, bytes.size()));
    upload(uncounted_, bytes.data(), std::ssize(bytes));
    return static_cast<const std::byte*>(uncounted_);
}

std::unique_ptr<model::Stopwatch> CudaDevice::make_stopwatch() {
    return std::make_unique<EventStopwatch>(stream_);
}

std::unique_ptr<model::LateValues> CudaDevice::make_late_values() {
    return std::make_unique<PinnedValues>(stream_);
}

std::unique_ptr<model::DeviceMarks> CudaDevice::make_marks() {
    return std::make_unique<EventMarks>(stream_);
}

void CudaDevice::synchronize() {
    expect_host_access();
    MGPLAN_CUDA(cudaStreamSynchronize(stream_));
}

void CudaDevice::copy_on_device(void* to, const void* from, std::int64_t bytes) {
    if (bytes == 0 || to == from) return;
    MGPLAN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream_));
}

void CudaDevice::zero_memory(void* memory, std::int64_t bytes) {
    if (bytes == 0) return;
    MGPLAN_CUDA(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), stream_));
}

void CudaDevice::upload(void* to, const void* from, std::int64_t bytes) {
    if (bytes == 0) return;
    expect_host_access();
    if (bytes <= StagingRing::kSlotBytes) return staging_->upload(to, from, bytes);
    // From pageable memory the call returns once the values were taken to a staging buffer; from pinned memory, and from any
    // where the card needs no staging (CUDA programming guide, "Asynchronous Execution"), it may return earlier, so wait.
    MGPLAN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream_));
    if (reads_host_memory_) return synchronize();
    cudaPointerAttributes attributes{};
    MGPLAN_CUDA(cudaPointerGetAttributes(&attributes, from));
    if (attributes.type != cudaMemoryTypeUnregistered) synchronize();
}

void CudaDevice::download(void* to, const void* from, std::int64_t bytes) {
    if (bytes == 0) return;
    expect_host_access();
    MGPLAN_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream_));
    synchronize();
}

void CudaDevice::reduce(Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> outputs, std::int64_t begin, std::int64_t end) {
    reduce_on(*this, dtype, reduction, inputs, outputs, begin, end);
}

}  // namespace mgplan::runtime::cuda
