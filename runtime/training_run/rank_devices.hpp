#pragma once
// Devices that the ranks of a run compute on.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "model/device/device.hpp"
#include "model/device/device_marks.hpp"
#include "model/device/kernel_traits.hpp"
#include "runtime/cuda_loader/cuda_module.hpp"
#include "runtime/training_run/machine_memory.hpp"

namespace mgplan::runtime {

class SteppedMemory;
struct ArenaScript;

/// One rank's device and what its allocator counts. Made and used on the rank's thread.
class RankDevice {
public:
    virtual ~RankDevice() = default;
    [[nodiscard]] virtual model::Device& device() = 0;
    [[nodiscard]] virtual const model::MemoryUse& memory() const = 0;
    /// Bytes that the device's pool holds, in use or kept, and those of its arena.
    [[nodiscard]] virtual std::int64_t reserved_bytes() const = 0;
    /// Free bytes of the device, for this process and all others; nothing if the device does not report them.
    [[nodiscard]] virtual std::optional<std::int64_t> free_bytes() { return std::nullopt; }
    /// The arena of its memory; nullptr for a pool alone.
    [[nodiscard]] virtual SteppedMemory* arena() { return nullptr; }
    /// Returns marks that time single ops; nullptr if an op has run when its call returns.
    [[nodiscard]] virtual std::unique_ptr<model::DeviceMarks> make_marks() { return nullptr; }
    /// Returns a copy of these bytes in the device's memory that its counters leave out, freed with the device: for the values that
    /// emulated ranks send. To be called once.
    [[nodiscard]] virtual const std::byte* uncounted(std::span<const std::byte> bytes) = 0;
};

/// The devices of all ranks of this process, of one kind. Any thread may call it.
class RankDevices {
public:
    virtual ~RankDevices() = default;
    [[nodiscard]] virtual std::string text() const = 0;  ///< "CPU", "NVIDIA H200 without cuDNN"
    /// Traits of the kernels that predictions assume.
    [[nodiscard]] virtual const model::KernelTraits& traits() const = 0;
    /// Memory that the ranks of this process share: of a GPU the free bytes, so it is to be called before they begin.
    [[nodiscard]] virtual MachineMemory memory() const = 0;
    /// An op has run when its call returns, so that the host's clock times ops one by one.
    [[nodiscard]] virtual bool runs_at_once() const = 0;
    /// With a pool, or an arena that follows the script, which outlives the device.
    [[nodiscard]] virtual std::unique_ptr<RankDevice> make(int rank, const ArenaScript* script) const = 0;
    /// Joins a world of processes over NCCL, on a device of these. Throws ConfigError where devices have none.
    [[nodiscard]] virtual std::unique_ptr<NcclWorldInterface> connect(RankDevice& device, int rank, int size, const Bootstrap& bootstrap,
                                                                      const NcclOptions& options) const;
};

/// A CPU device for each rank.
[[nodiscard]] const RankDevices& cpu_devices();

/// The first GPU that CUDA shows this process, for all ranks together; or with a local rank its own: the one of that number, or
/// the only one there is. `deterministic`: attention as separate products,
/// because cuDNN's backward adds in an order of chance, and no algorithm of a product by timing (docs/decisions/0005-cuda-module.md).
/// Throws CudaUnavailable, and ConfigError for a local rank without a GPU.
[[nodiscard]] std::shared_ptr<const RankDevices> cuda_devices(bool deterministic, std::optional<int> local_rank = std::nullopt);

}  // namespace mgplan::runtime
