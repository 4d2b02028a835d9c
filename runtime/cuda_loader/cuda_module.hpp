#pragma once
// Interface of libmgplan_cuda.so. The module has its own copy of model/ and plan/, so only virtual functions declared here, and plain
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
    /// Returns a copy of these bytes on the card, outside of the pool and its counters, freed with the device. To be called once.
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

/// Properties of a card and its libraries, for the diagnosis of failures.
struct CudaProbe {
    /// The card reads host memory by itself, so that copies from it may still run when they return.
    bool reads_pageable_memory = false;
    std::string cudnn_device;                                    ///< the card as cuDNN sees it, JSON; or why not
    std::vector<std::pair<std::string, std::string>> attention;  ///< shapes, and the plan that cuDNN has or its refusal
};

/// Spreads bytes of rank 0 to all ranks, so that NCCL's ranks can connect. All ranks call it, equally often and in the same order;
/// returns rank 0's bytes on each; the argument of other ranks is ignored.
using Bootstrap = std::function<std::vector<std::byte>(const std::vector<std::byte>& from_rank_0)>;

struct NcclOptions {
    /// An operation that takes longer ends the world: a partner is dead or hangs.
    std::chrono::milliseconds deadline{std::chrono::minutes{10}};
    /// Called often from a thread of the world, also while it is made: returns why the world must end, or an empty string.
    std::function<std::string()> ended{};
};

/// One rank of a world of processes with a GPU each.
class NcclWorldInterface {
public:
    virtual ~NcclWorldInterface() = default;
    /// As model::World says; must not outlive this object. ALL ranks of the world join in the same order, each with the
    /// list it is in (lists of one join are disjoint), because communicators are split off the world's.
    [[nodiscard]] virtual model::World view() = 0;
    /// Traffic of this rank's communicators, counted at each call of NCCL.
    [[nodiscard]] virtual const model::CollectiveCounter& traffic() const = 0;
    virtual void abort(const std::string& reason) noexcept = 0;
};

/// The module's one object. Any thread may call it.
class CudaModule {
public:
    virtual ~CudaModule() = default;
    /// Reason why no GPU can be used, in one sentence: no driver, too old a driver, no card; empty if one can.
    [[nodiscard]] virtual std::string unavailable() = 0;
    /// Looks at the cards without using them: nothing is allocated there.
    [[nodiscard]] virtual std::vector<CudaCard> cards() = 0;
    /// Bytes of a card that neither this process nor another has taken. Makes this process's context on it, some 500 MB, which a run
    /// there needs anyway. Throws RunError where the card does not answer.
    [[nodiscard]] virtual std::int64_t free_bytes(int ordinal) = 0;
    [[nodiscard]] virtual CudaVersions versions() = 0;
    /// Takes seconds: it builds plans. Throws RunError where the card does not answer.
    [[nodiscard]] virtual CudaProbe probe(int ordinal) = 0;
    /// Returns true if cuDNN has no plan for attention of this shape on the card within `workspace_bytes`; prints its reason to stderr,
    /// once per shape and process, if there is a cuDNN. Takes up to a second or two. Throws RunError where the card does not answer.
    [[nodiscard]] virtual bool refuses_attention(int ordinal, const model::FusedShape& shape, std::int64_t workspace_bytes) = 0;
    /// Several devices may share a card. `deterministic`: no kernel whose result may differ from run to run, so no fused
    /// attention and no product's algorithm by timing. `script`: places of its tensors in one block of memory; nullptr: a pool; it
    /// outlives the device. `plans`: the device's KernelTraits::fused_plans. Call it on the rank's thread. Throws RunError, std::bad_alloc
    /// where the card has no room for that block.
    [[nodiscard]] virtual std::unique_ptr<CudaDeviceInterface> make_device(int ordinal, int rank, bool deterministic = false,
                                                                           const ArenaScript* script = nullptr,
                                                                           std::shared_ptr<const model::FusedPlans> plans = nullptr) = 0;
    /// `device` is this module's and outlives the world. Throws RunError where there is no NCCL.
    [[nodiscard]] virtual std::unique_ptr<NcclWorldInterface> make_nccl_world(CudaDeviceInterface& device, int rank, int size,
                                                                              const Bootstrap& bootstrap, const NcclOptions& options) = 0;
};

/// Version and sizes of the shared types, which must be equal in program and module.
[[nodiscard]] std::string cuda_interface();

/// The module's only exported symbol; nullptr where the interface is another. The object lives forever.
using CudaModuleEntry = CudaModule* (*)(const char* interface);
inline constexpr const char* kCudaModuleEntry = "mgplan_cuda_module";
inline constexpr const char* kCudaModuleFile = "libmgplan_cuda.so";

}  // namespace mgplan::runtime
