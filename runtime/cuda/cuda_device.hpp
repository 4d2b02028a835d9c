#pragma once
// A GPU as one rank uses it: one stream, on which kernels, copies and products run in the order of the calls. Only read(), large
// write() calls, kernels that return a value, and LateValues::receive() wait for the GPU.

#include <cuda_runtime_api.h>

#include <memory>

#include "model/device/memory_operations.hpp"
#include "runtime/cuda/card_blocks.hpp"
#include "runtime/cuda/cublas_lt.hpp"
#include "runtime/cuda/cuda_capture.hpp"
#include "runtime/cuda/ops/launch.hpp"
#include "runtime/cuda/staging_ring.hpp"
#include "runtime/cuda_loader/cuda_module.hpp"
#include "runtime/memory/arena_allocator.hpp"
#include "runtime/memory/pool_allocator.hpp"

namespace mgplan::runtime::cuda {

/// Several may share a card, in one process, one for each rank and thread. Memory that a device gave back is used again
/// for later calls of the same device alone, which its stream keeps apart.
class CudaDevice final : public CudaDeviceInterface, private model::MemoryOperations {
public:
    /// `ordinal` as CUDA counts the cards. The rank is for messages. `script`: of an arena, outlives the device; nullptr: a
    /// pool. `times_products`: as CublasLt says. Throws std::bad_alloc where the card has no room for the arena.
    CudaDevice(int ordinal, int rank, const model::KernelTraits& traits, const ArenaScript* script, bool times_products);
    ~CudaDevice() override;

    [[nodiscard]] const model::MemoryUse& memory() const override { return measured_.use(); }
    void restart_high_water() override { measured_.restart_high_water(); }
    [[nodiscard]] std::int64_t reserved_bytes() const override { return measured_.reserved_bytes(); }
    [[nodiscard]] std::int64_t free_bytes() override;
    void trim() noexcept override {
        if (pool_ != nullptr) pool_->trim();
    }
    [[nodiscard]] const std::byte* uncounted(std::span<const std::byte> bytes) override;
    [[nodiscard]] SteppedMemory* arena() override { return arena_; }
    [[nodiscard]] std::unique_ptr<model::DeviceMarks> make_marks() override;
    [[nodiscard]] model::WorkCapture* work_capture() override { return capture_.get(); }
    void synchronize() override;
    [[nodiscard]] std::unique_ptr<model::Stopwatch> make_stopwatch() override;
    [[nodiscard]] std::unique_ptr<model::LateValues> make_late_values() override;
    [[nodiscard]] model::MemoryOperations* memory_operations() override { return this; }

    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_; }
    [[nodiscard]] CublasLt& products() { return *products_; }
    /// nullptr without cuDNN.
    [[nodiscard]] FusedLibrary* attention_library() { return attention_.get(); }

    // For kernels. Host memory may be changed as soon as upload() returns; download() waits for what came before it.
    void copy_on_device(void* to, const void* from, std::int64_t bytes);
    void zero_memory(void* memory, std::int64_t bytes);
    void upload(void* to, const void* from, std::int64_t bytes);
    void download(void* to, const void* from, std::int64_t bytes);

private:
    CudaDevice(const std::shared_ptr<CardBlocks>& blocks, int ordinal, int rank, const model::KernelTraits& traits,
               const ArenaScript* script, bool times_products);
    void do_write(void* to, const void* from, std::int64_t bytes) override { upload(to, from, bytes); }
    void do_read(void* to, const void* from, std::int64_t bytes) override { download(to, from, bytes); }
    void do_zero(void* memory, std::int64_t bytes) override { zero_memory(memory, bytes); }
    std::byte* do_take_on_host(std::int64_t bytes) override {
        return pinned_->take(bytes, model::MemoryCategory::workspace, "on the host");
    }
    void do_give_back_on_host(std::byte* memory, std::int64_t bytes) noexcept override {
        pinned_->give_back(memory, bytes, model::MemoryCategory::workspace);
    }

    void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override { copy_on_device(to, from, bytes); }
    void reduce(Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                std::int64_t begin, std::int64_t end) override;
    void finish() override { synchronize(); }

    int ordinal_;
    int rank_;
    bool reads_host_memory_ = false;  ///< by itself, without staging
    MeasuredAllocator& measured_;
    PoolAllocator* pool_ = nullptr;  ///< one of the two
    ArenaAllocator* arena_ = nullptr;
    std::unique_ptr<PoolAllocator> pinned_;  ///< memory of the host that copies reach without staging
    cudaStream_t stream_ = nullptr;          ///< that of its blocks, which outlive it
    void* uncounted_ = nullptr;
    std::unique_ptr<StagingRing> staging_;
    std::unique_ptr<CudaCapture> capture_;
    std::unique_ptr<CublasLt> products_;
    std::unique_ptr<FusedLibrary> attention_;
};

}  // namespace mgplan::runtime::cuda
