#include "simulator/memory/device_overhead.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "plan/cluster/architectures.hpp"
#include "plan/text/rounding.hpp"
#include "simulator/memory/dispatcher_buffers.hpp"
#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kKiB = std::int64_t{1} << 10;
constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

// init.cc: lines or elements per thread · threads · 8 steps · bytes of one.
constexpr std::int64_t kLowLatency = std::int64_t{8} * 512 * 8 * 16;
constexpr std::int64_t kLowLatency128 = std::int64_t{120} * 640 * 8 * 8;
constexpr std::int64_t kSimple = 4 * kMebibyte;
constexpr std::int64_t kIpcMinimum = 2 * kMebibyte;
constexpr std::int64_t kSharedSteps = 16;
constexpr std::int64_t kMostChannels = 64;

// One channel's send to one neighbour and receive from one. The flags take a few KiB of a side that is rounded up.
constexpr std::int64_t kPairInside = round_up(kLowLatency + kLowLatency128 + kSimple + 1, kIpcMinimum) + kIpcMinimum;
constexpr std::int64_t kPairNetwork = 2 * (kLowLatency128 + kSimple);

/// Number of channels of the collectives of a group with `inside` members in each domain.
std::int64_t collective_channels(const ClusterSpec& cluster, std::int64_t inside, bool crosses_network) {
    if (crosses_network) {
        // graph/connect.cc, ncclTopoPostset: the search finds a path for each network card near a member; each makes two channels, four
        // from Hopper on if that gives less than 16 and the path inside the node is fast (45 GB/s: NVLink).
        const std::int64_t cards = std::max<std::int64_t>(1, inside * cluster.nics_per_node / std::max(1, cluster.gpus_per_node));
        const std::int64_t channels = 2 * cards;
        const bool doubled = cluster.compute_capability >= architectures::kHopper && cluster.nvlink_domain > 1 && channels < 16;
        return std::min(kMostChannels, doubled ? 2 * channels : channels);
    }
    if (cluster.nvlink_domain <= 1) return 2;  // one path over PCIe
    // Logs of 8 A100 ("Channel 19/24", nccl-tests issue 100) and 8 H100 (channels 0 to 23, nccl issue 1259). On 8 B300 sends use 64 (nccl
    // issue 2363), the next power of two above the collectives' number; 48 is assumed, for racks too: the search for rings
    // (graph/search.cc) divides a GPU's own bandwidth, whatever the size of the domain.
    return cluster.compute_capability >= architectures::kBlackwell ? 48 : 24;
}

/// nvls.cc: NVLS_NCHANNELS_SM90, _SM100 and _SM100_NVL.
std::int64_t switch_channels(const ClusterSpec& cluster, bool crosses_network) {
    if (!cluster.nvls) return 0;
    return cluster.compute_capability >= architectures::kBlackwell ? (crosses_network ? 32 : 24) : 16;
}

/// graph/paths.cc, ncclTopoComputeP2pChannels: the next power of two.
std::int64_t send_channels(std::int64_t collective_channels) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(collective_channels)));
}

/// Number of channels that connect two members of a group that crosses the network: two per card, one if two would give channels more than
/// four operations at a time (graph/paths.cc of 2.28.9, ncclTopoGetNchannels). It is the minimum over all pairs, and so applies inside
/// domains too.
std::int64_t channels_per_peer_across(std::int64_t ranks, std::int64_t collective_channels) {
    return 2 * ranks > 4 * collective_channels ? 1 : 2;
}

/// Groups of one name in the grids of a layout.
struct Group {
    std::string_view name;
    bool expert_grid = false;
    EnumSet<Axis> axes;
    CommunicatorUse use;
    bool ends_only = false;  ///< only between the first and last stage
    /// Part of the dp axis if weights are split: all of it, the neighbours with the parts of a weight, or those with the same part.
    enum class Data { all, parts, same_part } data = Data::all;
    std::int64_t first_ranks = 0;  ///< only this number of adjacent members; 0: all
};

std::vector<Group> groups_of(const Layout& layout, const Workload& work) {
    const bool moe = work.model.moe.has_value();
    const bool distributed = work.training.distributed_optimizer;
    const bool megatron = layout.engine == Engine::megatron;
    const bool parallel_rows = layout.sequence_parallel;
    CommunicatorUse context;
    context.gathers = layout.cp_comm_type == CpCommType::all_gather;
    context.exchanges = layout.cp_comm_type == CpCommType::a2a || layout.cp_comm_type == CpCommType::a2a_p2p;
    context.streams = layout.cp_comm_type == CpCommType::p2p ? 1 : 0;
    // Reduce-scatter and all-gather of buckets; losses and norms are small.
    const bool scatters = megatron ? work.training.scatters_gradients() : distributed;
    const CommunicatorUse data{.gathers = distributed, .large_reduces = !scatters, .small_reduces = true};
    std::vector<Group> groups{
        {"world", false, {Axis::tp, Axis::cp, Axis::dp, Axis::pp}, {.small_reduces = megatron}},
        {"tp", false, {Axis::tp}, {.gathers = parallel_rows, .large_reduces = !parallel_rows, .small_reduces = true}},
        {"cp", false, {Axis::cp}, context},
        {"dp-cp", false, {Axis::cp, Axis::dp}, data, false, Group::Data::same_part},
    };
    if (megatron) {
        groups.push_back({"pp", false, {Axis::pp}, {.streams = 2}});
        // Gradient norms: optimizer/__init__.py gives the distributed optimizer all ranks of its instance, others tp-pp.
        if (distributed)
            groups.push_back({"intra-optimizer", false, {Axis::tp, Axis::cp, Axis::dp, Axis::pp}, {.small_reduces = true}});
        else
            groups.push_back({"tp-pp", false, {Axis::tp, Axis::dp, Axis::pp}, {.small_reduces = true}, false, Group::Data::parts});
        // GTP_WEIGHT_REMAT_GROUP: weights are gathered, and their gradients reduce-scattered.
        groups.push_back({"weight-parts", false, {Axis::dp}, {.gathers = true}, false, Group::Data::parts});
    } else {
        groups.push_back({"pp", false, {Axis::pp}, {.small_reduces = true, .streams = 1}});
        groups.push_back({"pp-backward", false, {Axis::pp}, {.streams = 1}});
        groups.push_back({"tp-pp", false, {Axis::tp, Axis::pp}, {.small_reduces = true}});
    }
    // Dynamic context parallelism (parallel_state.py, create_hybrid_dp_cp_groups): groups of each power of two of ranks, except one and
    // all, in which documents pass keys and values around. Each is created at its first use; all are counted.
    const std::int64_t ranks = layout.dp() * layout.sizes.cp;
    if (megatron && work.training.megatron.document_tokens > 0) {
        for (std::int64_t size = 2; size < ranks && ranks % size == 0; size *= 2)
            groups.push_back({"hybrid-dp-cp", false, {Axis::cp, Axis::dp}, {.streams = 1}, false, Group::Data::all, size});
    }
    if (work.model.tied_embeddings && layout.sizes.pp > 1)
        groups.push_back({"embedding", false, {Axis::pp}, {.large_reduces = true}, true});
    if (moe) {
        // The flexible dispatchers exchange tokens with kernels of their own; they use the communicator only to share the handles of their
        // buffers (deep_ep/hybrid_ep_buffer.py and buffers/legacy.py: all-gathers of handles).
        const bool exchanges = work.model.moe->dispatcher == TokenDispatcher::all_to_all;
        groups.push_back({"ep", true, {Axis::ep}, {.gathers = !exchanges, .exchanges = exchanges}});
        groups.push_back({"etp", true, {Axis::tp}, {.gathers = true}});
        groups.push_back({"expert-dp", true, {Axis::dp}, data, false, Group::Data::same_part});
        if (megatron) groups.push_back({"expert-weight-parts", true, {Axis::dp}, {.gathers = true}, false, Group::Data::parts});
        groups.push_back({"tp-cp", false, {Axis::tp, Axis::cp}, {.small_reduces = true}});
        // Also spans the neighbours with the parts of a weight (_EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP_WITH_EGTP).
        if (!megatron || !distributed)
            groups.push_back(
                {"expert-tp-ep-pp", true, {Axis::tp, Axis::ep, Axis::dp, Axis::pp}, {.small_reduces = true}, false, Group::Data::parts});
    }
    return groups;
}

/// Buffers of the layout's dispatcher. mgplan's own engine has none except tensors.
std::int64_t dispatcher_bytes(const GroupPath& path, const Layout& layout, const Workload& work) {
    if (!work.model.moe || layout.engine != Engine::megatron) return 0;
    DispatcherBuffers buffers;
    const std::int64_t rows = layout.micro_batch * work.batch.sequence / layout.sizes.cp;
    buffers.tokens = layout.sequence_parallel ? rows / layout.sizes.tp : rows;
    buffers.hidden = work.model.routed_width();
    buffers.experts_per_rank = work.model.moe->experts / layout.sizes.ep;
    buffers.multiprocessors = work.training.megatron.dispatcher_sms;
    switch (work.model.moe->dispatcher) {
        case TokenDispatcher::deep_ep:
            return deep_ep_bytes(path, buffers);
        case TokenDispatcher::hybrid_ep:
            return hybrid_ep_bytes(path, buffers);
        case TokenDispatcher::all_gather:
        case TokenDispatcher::all_to_all:
            break;
    }
    return 0;
}

}  // namespace

std::int64_t communicator_bytes(const GroupPath& path, const CommunicatorUse& use, const ClusterSpec& cluster) {
    if (path.single()) return 0;
    const bool crosses = path.crosses_network();
    const std::int64_t inside = path.ranks_per_domain;
    const std::int64_t collective = collective_channels(cluster, inside, crosses);
    const std::int64_t sends = send_channels(collective);
    const std::int64_t domains = (path.ranks + inside - 1) / inside;

    // Each channel enters and leaves a domain at one member: that share of a member's connections crosses the network.
    std::int64_t pairs_inside = 0, pairs_network = 0;
    const bool reduces = use.large_reduces || use.small_reduces, rings = use.gathers || use.large_reduces;
    if (inside > 1) pairs_inside = reduces && inside > 2 ? 2 : (rings || reduces) ? 1 : 0;
    if (crosses) {
        const std::int64_t tree = reduces ? std::min<std::int64_t>(3, domains - 1) : 0;
        pairs_network = domains == 2 ? ((rings || reduces) ? 1 : 0) : tree + (rings ? 1 : 0);
    }
    std::int64_t bytes = collective * (pairs_inside * kPairInside + pairs_network * kPairNetwork / inside);
    if (use.large_reduces && inside > 2) bytes += switch_channels(cluster, crosses) * 2 * 8 * 128 * kKiB * inside;

    const bool sends_anything = use.exchanges || use.streams > 0;
    bytes += sends * kSharedSteps * (crosses ? 128 * kKiB : 512 * kKiB) * (crosses && sends_anything ? 2 : 1);
    const std::int64_t peers = use.exchanges ? inside - 1 : std::min<std::int64_t>(use.streams, inside - 1);
    bytes += peers * (crosses ? channels_per_peer_across(path.ranks, collective) : sends) * kPairInside;
    return bytes;
}

std::int64_t library_workspace_bytes(const Workload& workload, Engine engine, const Calibration& calibration) {
    if (engine != Engine::megatron) return calibration.gemm_workspace_bytes;
    const MegatronSwitches& megatron = workload.training.megatron;
    // Reproducible GEMMs need CUBLAS_WORKSPACE_CONFIG, which Megatron-LM's tests set to :4096:8, 32 MiB.
    const std::int64_t each = megatron.deterministic ? 32 * kMebibyte : calibration.gemm_workspace_bytes;
    const bool grouped = workload.model.moe && workload.model.moe->grouped_gemm;
    return 2 * each + (megatron.transformer_engine ? (grouped ? 5 : 1) * calibration.engine_workspace_bytes : 0);
}

namespace {

/// The first `members` members of a group over these axes, the fastest varying first.
std::vector<GridAxis> first_members(std::vector<GridAxis> axes, std::int64_t members) {
    for (GridAxis& axis : axes) {
        axis.size = std::min(axis.size, members);
        members /= axis.size;
    }
    return axes;
}

}  // namespace

ContextTerms DeviceOverhead::terms(const Layout& layout, int pp_rank) const {
    ContextTerms terms;
    terms.driver = calibration_.driver_bytes;
    terms.modules = calibration_.module_bytes;
    const bool end = pp_rank == 0 || pp_rank + 1 == static_cast<int>(layout.sizes.pp);
    const auto dense = dense_grid(layout.sizes), expert = expert_grid(layout.sizes);
    const WeightShards shards = layout.engine == Engine::megatron ? workload_.training.megatron.weight_shards : WeightShards{};
    for (const Group& group : groups_of(layout, workload_)) {
        if (group.ends_only && !end) continue;
        std::vector<GridAxis> axes;
        for (const GridAxis& axis : group.expert_grid ? expert : dense) {
            if (!group.axes.contains(axis.axis)) continue;
            const bool cut = axis.axis == Axis::dp && group.data != Group::Data::all;
            axes.push_back(
                cut ? axis_of_parts(axis, group.expert_grid ? shards.experts : shards.dense, group.data == Group::Data::same_part) : axis);
            // The first stage and the last, adjacent or at the two ends.
            if (group.ends_only) axes.back() = {axis.axis, 2, axis.stride * (axis.size - 1)};
        }
        if (group.first_ranks > 0) axes = first_members(std::move(axes), group.first_ranks);
        const GroupPath path = group_path(axes, workload_.cluster, calibration_, layout.sizes.world);
        if (group.name == "ep") {
            const std::int64_t buffers = dispatcher_bytes(path, layout, workload_);
            if (buffers > 0) terms.nccl.push_back({"dispatcher", buffers});
        }
        const std::int64_t bytes = communicator_bytes(path, group.use, workload_.cluster);
        if (bytes > 0 && !terms.nccl.empty() && terms.nccl.back().group == group.name)
            terms.nccl.back().bytes += bytes;  // groups of another size under one name
        else if (bytes > 0)
            terms.nccl.push_back({group.name, bytes});
    }
    return terms;
}

DeviceOverhead::Key DeviceOverhead::key_of(const Layout& layout) const {
    const ParallelSizes& sizes = layout.sizes;
    const bool by_tokens = workload_.model.moe && workload_.model.moe->dispatcher == TokenDispatcher::hybrid_ep;
    return {sizes.tp,
            sizes.cp,
            sizes.ep,
            sizes.etp,
            sizes.pp,
            sizes.world,
            sizes.order,
            layout.engine,
            layout.cp_comm_type,
            layout.sequence_parallel,
            by_tokens ? layout.micro_batch : 0};
}

const DeviceOverhead::Sums& DeviceOverhead::sums(const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    const Key key = key_of(layout);
    if (last_ == nullptr || !(key == last_key_)) {
        auto [entry, fresh] = sums_.try_emplace(key);
        if (fresh) entry->second = {terms(layout, 0).total(), sizes.pp > 2 ? terms(layout, 1).total() : 0};
        last_ = &entry->second;
        last_key_ = key;
    }
    return *last_;
}

std::int64_t DeviceOverhead::bytes(const Layout& layout, int pp_rank) {
    return pp_rank == 0 || pp_rank + 1 == static_cast<int>(layout.sizes.pp) ? sums(layout).end : sums(layout).inner;
}

}  // namespace mgplan::simulator
