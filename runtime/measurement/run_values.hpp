#pragma once
// Results of a training run and its prediction: values alone, for reports. Bytes are integers, times seconds.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::runtime {

/// Names of the byte categories, in the order of ByteCounts.
inline constexpr std::array<std::string_view, 6> kByteCategories{"parameters",  "gradients",     "optimizer",
                                                                 "activations", "communication", "workspace"};
using ByteCounts = std::array<std::int64_t, kByteCategories.size()>;

/// Kind of memory that a rank's tensors are in.
enum class MemoryMode : std::uint8_t {
    pool,   ///< in blocks that are kept and used again
    arena,  ///< at offsets of one block, planned before the first step
};

/// One rank's memory from the first allocation to the last step.
struct MemoryValues {
    std::int64_t peak_bytes = 0;      ///< the most that lived at one time, as requested, without rounding
    std::int64_t reserved_bytes = 0;  ///< taken from the system by the pool, or arena_bytes + fallback_bytes
    ByteCounts breakdown{};           ///< at that time
    ByteCounts high_water{};          ///< each category's own maximum
    std::int64_t host_bytes = 0;      ///< the most that waited in the host's memory at one time, no part of the peak
    std::int64_t arena_bytes = 0;     ///< with an arena: up to the end of its last range in use
    std::int64_t fallback_bytes = 0;  ///< with an arena: of the additional pool, for sizes that are not planned
    bool operator==(const MemoryValues&) const = default;
};

/// Operations of one kind in the groups of one name.
struct CollectiveValues {
    std::string group;
    std::string op;
    std::int64_t count = 0;
    std::int64_t payload_bytes = 0;  ///< in nccl-tests' sense: of all-gather and reduce-scatter the whole array
    bool operator==(const CollectiveValues&) const = default;
};

/// Bytes of the tensors of one name.
struct NamedBytes {
    std::string name;
    std::int64_t bytes = 0;
    bool operator==(const NamedBytes&) const = default;
};

/// A rank's CUDA graphs; zeros without.
struct GraphValues {
    std::int64_t forward_graphs = 0;
    std::int64_t backward_graphs = 0;
    std::int64_t slots = 0;
    std::int64_t static_input_bytes = 0;
    std::int64_t boundary_bytes = 0;   ///< of tensors that graphs pass to eager work …
    std::vector<NamedBytes> boundary;  ///< … by name, in alphabetical order
    bool operator==(const GraphValues&) const = default;
};

/// Memory and traffic of a rank, measured or predicted. Collectives by group and op in alphabetical order.
struct RankUse {
    MemoryValues memory;
    GraphValues graphs;
    std::vector<CollectiveValues> collectives;
    bool operator==(const RankUse&) const = default;
};

/// Time of one kind of op, from its start to the start of the next one.
struct OpSeconds {
    std::string op;
    std::int64_t count = 0;
    double seconds = 0;
};

/// Planned sizes of a rank's arena; zeros with a pool.
struct ArenaValues {
    std::int64_t planned_bytes = 0;
    std::int64_t lower_bound_bytes = 0;  ///< the most bytes of planned tensors alive at once
    bool operator==(const ArenaValues&) const = default;
};

struct RankValues {
    int rank = 0;
    ArenaValues arena;
    RankUse measured;
    RankUse predicted;
    std::int64_t graph_pieces = 0;  ///< pieces of the captured graphs, which collectives cut
    std::int64_t graph_nodes = 0;   ///< kernels, copies and fills of all of them
    RankUse difference;             ///< measured - predicted, field by field; a collective of one side alone is compared with zeros
    std::vector<OpSeconds> ops;     ///< of the steps with ops_timed; most seconds first
};

struct StepValues {
    double loss = 0;
    double grad_norm = 0;
    double learning_rate = 0;
    double seconds = 0;
    /// Mean load-balancing loss of the MoE layers without its coefficient, 1 when balanced; set for models that train with one.
    std::optional<double> auxiliary_loss;
    /// Mean loss of each depth of multi-token prediction, without its factor.
    std::vector<double> mtp_losses;
    bool skipped = false;    ///< parameters were left as they were: the loss or a gradient was not finite
    bool ops_timed = false;  ///< RankValues::ops includes this step's ops, and `seconds` the cost of timing them
};

/// Operations of one kind in the groups of one name, added up over all ranks.
struct CollectiveComparison {
    CollectiveValues measured;
    std::int64_t predicted_count = 0;
    std::int64_t predicted_payload_bytes = 0;
};

struct RunValues {
    MemoryMode memory = MemoryMode::pool;
    std::vector<StepValues> steps;  ///< those that were done
    std::int64_t steps_before = 0;  ///< done before those, up to the checkpoint that the run went on from
    std::int64_t steps_asked = 0;   ///< both together
    bool interrupted = false;
    std::string problem;    ///< why all ranks stopped after the last of `steps`, naming step and rank; empty where nothing was wrong
    std::string data;       ///< in words
    std::string device;     ///< "CPU", or the GPU's name
    std::string transport;  ///< "threads of one process", "MPI", …
    /// One rank alone: the data of others are emulated, so losses and gradient norms mean nothing.
    bool emulated_partners = false;
    std::vector<RankValues> ranks;
    std::vector<CollectiveComparison> collectives;
    bool as_predicted = false;  ///< every difference of every rank is 0
};

}  // namespace mgplan::runtime
