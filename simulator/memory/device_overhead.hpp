#pragma once
// Device memory outside any tensor allocator: the driver's context, loaded kernels, NCCL; and the scratch that GEMM libraries keep.
// docs/memory-megatron.md, "Outside the tensor allocator", explains formulas and sources.

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/memory/memory_prediction.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {

/// Operations on a communicator, which determine NCCL's connections: they are made at the first use of an algorithm (NCCL_RUNTIME_CONNECT,
/// since 2.22).
struct CommunicatorUse {
    bool gathers = false;        ///< all-gathers or reduce-scatters: rings
    bool large_reduces = false;  ///< all-reduces of many MiB: rings, and the switch if it reduces
    bool small_reduces = false;  ///< all-reduces of few bytes: trees
    int streams = 0;             ///< pipeline or ring neighbours that it sends to (and the same number it receives from)
    bool exchanges = false;      ///< sends to and receives from all members
};

/// Bytes of one NCCL communicator on its fullest rank, by the sizes of NCCL 2.28.9 (init.cc, device.h, transport/p2p.cc, net.cc, nvls.cc):
/// - a channel's connection to a neighbour over NVLink or PCIe: LL (512 KiB), LL128 (4.69 MiB) and SIMPLE (4 MiB) buffers of
///   the receiving side with its flags, and the flags of the sending side, each rounded up to 2 MiB (CUDA_IPC_MIN): 12 MiB;
/// - over the network: LL128 and SIMPLE on the device for each side, 17.4 MiB (LL is in host memory);
/// - a ring has one such pair per channel, a tree two inside a domain and up to three between domains;
/// - sends and receives share one network buffer, made with the communicator: p2p channels · 16 steps · chunk (512 KiB inside
///   a domain, 128 KiB across), doubled for receiving if the network is used; inside a domain each peer also has a
///   connection on every p2p channel, whatever the number of peers (2 channels if the group crosses the network, 1 in large groups);
/// - reductions in the switch (NVLS): channels · 2 · 8 steps · 128 KiB for each member of the domain.
/// 0 for a group of one.
[[nodiscard]] std::int64_t communicator_bytes(const GroupPath& path, const CommunicatorUse& use, const ClusterSpec& cluster);

/// Scratch of cuBLAS and Transformer Engine, which the framework's allocator does count. PyTorch keeps one cuBLAS workspace for each handle
/// and stream: one for the forward, one for the autograd thread (ATen/cuda/CublasHandlePool.cpp). Transformer Engine has its own in
/// addition, and four more for grouped GEMMs, which run on four streams (transformer_engine/pytorch/module/base.py). mgplan's own engine
/// has one.
[[nodiscard]] std::int64_t library_workspace_bytes(const Workload& workload, Engine engine, const Calibration& calibration);

/// Context, kernels and communicators of the layouts of one workload. Not thread-safe; workload and calibration must outlive it.
class DeviceOverhead {
public:
    struct Sums {
        std::int64_t end = 0, inner = 0;  ///< first or last stage; inner stages
    };

    DeviceOverhead(const Workload& workload, const Calibration& calibration) : workload_(workload), calibration_(calibration) {}

    /// All parts on the fullest rank of a stage. Groups are those that the engine creates and uses: mgplan's as in RankTrainer,
    /// Megatron-LM's as in parallel_state.py, whose communicators PyTorch creates at their first use.
    [[nodiscard]] ContextTerms terms(const Layout& layout, int pp_rank) const;
    /// The sum of terms() by stage. O(1) for layouts with groups seen before; the reference is valid as long as this object.
    [[nodiscard]] const Sums& sums(const Layout& layout);
    /// The sum of terms() for one stage.
    [[nodiscard]] std::int64_t bytes(const Layout& layout, int pp_rank);

private:
    /// Inputs of terms(), in addition to the workload.
    struct Key {
        std::int64_t tp = 0, cp = 0, ep = 0, etp = 0, pp = 0, world = 0;
        AxisOrder order;
        Engine engine = Engine::mgplan;
        CpCommType cp_comm_type = CpCommType::p2p;
        bool sequence_parallel = false;
        std::int64_t micro_batch = 0;  ///< 0 if no dispatcher buffer depends on it

        bool operator==(const Key&) const = default;
        [[nodiscard]] std::size_t hash() const {
            const auto& [tp_, cp_, ep_, etp_, pp_, world_, order_, engine_, cp_comm_type_, sequence_parallel_, micro_batch_] = *this;
            FieldHash axes;
            for (const Axis axis : order_.axes()) axes.add(axis);
            return hash_of(tp_, cp_, ep_, etp_, pp_, world_, axes.value(), engine_, cp_comm_type_, sequence_parallel_, micro_batch_);
        }
    };
    [[nodiscard]] Key key_of(const Layout& layout) const;

    const Workload& workload_;
    const Calibration& calibration_;
    std::unordered_map<Key, Sums, MemoKeyHash> sums_;
    Key last_key_;
    const Sums* last_ = nullptr;
};

}  // namespace mgplan::simulator
