#pragma once
// What libmgplan_cuda.so offers. The module has its own copy of model/ and plan/, so only what is virtual here, and plain
// values of both, pass between it and the program; docs/decisions/0005-cuda-module.md says why.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/world.hpp"
#include "model/device/device.hpp"
#include "model/device/device_marks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::runtime {

class SteppedMemory;
struct ArenaScript;

/// A GPU as one rank uses it, from one thread.
class CudaDeviceInterface : public model::Device {
public:
    [[nodiscard]] virtual const model::MemoryUse& memory() const = 0;
    /// Forgets maxima: from now on they are those of what is live.
    virtual void restart_high_water() = 0;
    /// Bytes held from the driver, in use or kept.
    [[nodiscard]] virtual std::int64_t reserved_bytes() const = 0;
    /// Bytes that the card has left for this process and all others, once all that was issued is done. Throws RunError.
    [[nodiscard]] virtual std::int64_t free_bytes() = 0;
    /// Hands kept blocks back to the driver; nothing happens with an arena.
    virtual void trim() noexcept = 0;
    /// A copy of these bytes on the card, beside the pool and its counters, until the device goes. One call.
    [[nodiscard]] virtual const std::byte* uncounted(std::span<const std::byte> bytes) = 0;
    /// The arena that its tensors lie in; nullptr with a pool alone.
    [[nodiscard]] virtual SteppedMemory* arena() = 0;
    /// For the times of single ops. Each mark costs the host about a microsecond.
    [[nodiscard]] virtual std::unique_ptr<model::DeviceMarks> make_marks() = 0;

protected:
    CudaDeviceInterface(const model::KernelTraits& traits, std::unique_ptr<model::Allocator> allocator, const model::KernelTable* kernels)
        : Device(model::DeviceKind::cuda, traits, std::move(allocator), kernels) {}
};

struct CudaCard {
    int ordinal = 0;
    std::string name;
    model::KernelTraits traits;
    std::int64_t memory_bytes = 0;
    int multiprocessors = 0;
};

/// "13.0" and the like; empty where a library is left out or not there.
struct CudaVersions {
    std::string runtime, driver, cublas_lt, cudnn, nccl;
};

/// What a card and its libraries answer, for whoever looks into a failure.
struct CudaProbe {
    /// The card reads host memory by itself, so that copies from it may still run when they return.
    bool reads_pageable_memory = false;
    std::string cudnn_device;                                    ///< the card as cuDNN sees it, JSON; or why not
    std::vector<std::pair<std::string, std::string>> attention;  ///< shapes, and the plan that cuDNN has or its refusal
};

/// How NCCL's ranks get to know each other: rank 0 gives bytes, every rank gets rank 0's. Called by all ranks in turn, as
/// often and in the same order on each; what it was given on other ranks is ignored.
using Bootstrap = std::function<std::vector<std::byte>(const std::vector<std::byte>& from_rank_0)>;

struct NcclOptions {
    /// An operation that takes longer ends the world: a partner is dead or hangs.
    std::chrono::milliseconds deadline{std::chrono::minutes{10}};
    /// Asked often, from a thread of the world's, while it is made too: why it must end, or nothing.
    std::function<std::string()> ended{};
};

/// One rank of a world of processes with a GPU each.
class NcclWorldInterface {
public:
    virtual ~NcclWorldInterface() = default;
    /// As model::World says; must not outlive this object. ALL ranks of the world join in the same order, each with the
    /// list it is in (lists of one join are disjoint), because communicators are split off the world's.
    [[nodiscard]] virtual model::World view() = 0;
    /// What this rank's communicators moved, counted where NCCL is called.
    [[nodiscard]] virtual const model::CollectiveCounter& traffic() const = 0;
    virtual void abort(const std::string& reason) noexcept = 0;
};

/// The module's one object. Any thread may call it.
class CudaModule {
public:
    virtual ~CudaModule() = default;
    /// Why no GPU can be used, in one sentence: no driver, too old a driver, no card; empty where one can.
    [[nodiscard]] virtual std::string unavailable() = 0;
    /// Looks at the cards without using them: nothing is allocated there.
    [[nodiscard]] virtual std::vector<CudaCard> cards() = 0;
    /// Bytes of a card that neither this process nor another has taken. Makes this process's context on it, some 500 MB, which a run
    /// there needs anyway. Throws RunError where the card does not answer.
    [[nodiscard]] virtual std::int64_t free_bytes(int ordinal) = 0;
    [[nodiscard]] virtual CudaVersions versions() = 0;
    /// Takes seconds: it builds plans. Throws RunError where the card does not answer.
    [[nodiscard]] virtual CudaProbe probe(int ordinal) = 0;
    /// Whether cuDNN has no plan for attention of this shape on the card within so many bytes; why goes to stderr, once for each shape in
    /// the process, where there is a cuDNN. Takes up to a second or two. Throws RunError where the card does not answer.
    [[nodiscard]] virtual bool refuses_attention(int ordinal, const model::FusedShape& shape, std::int64_t workspace_bytes) = 0;
    /// Several devices may share a card. `deterministic`: no kernel whose result may differ from run to run, so no fused
    /// attention and no product's algorithm by timing. `script`: where its tensors lie in one block of memory; nullptr: in a pool; it
    /// outlives the device. `plans`: the device's KernelTraits::fused_plans. Call it on the rank's thread. Throws RunError, std::bad_alloc
    /// where the card has no room for that block.
    [[nodiscard]] virtual std::unique_ptr<CudaDeviceInterface> make_device(int ordinal, int rank, bool deterministic = false,
                                                                           const ArenaScript* script = nullptr,
                                                                           std::shared_ptr<const model::FusedPlans> plans = nullptr) = 0;
    /// `device` is this module's and outlives the world. Throws RunError where there is no NCCL.
    [[nodiscard]] virtual std::unique_ptr<NcclWorldInterface> make_nccl_world(CudaDeviceInterface& device, int rank, int size,
                                                                              const Bootstrap& bootstrap, const NcclOptions& options) = 0;
};

/// What program and module must have in common: the version and the sizes of what both look into.
[[nodiscard]] std::string cuda_interface();

/// The module's only exported symbol; nullptr where the interface is another. The object lives forever.
using CudaModuleEntry = CudaModule* (*)(const char* interface);
inline constexpr const char* kCudaModuleEntry = "mgplan_cuda_module";
inline constexpr const char* kCudaModuleFile = "libmgplan_cuda.so";

}  // namespace mgplan::runtime
