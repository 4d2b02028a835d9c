#pragma once
// What a rank holds of weights that its neighbours hold in parts (plan/training/weight_shards.hpp), beside its own part's state: the
// buffers into which they are gathered, and those of their gradients.

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "model/optimizer/buffer_layout.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::simulator {

/// In how many parts the neighbours hold the parameter: 1 where each has it whole. Split are the weights of Transformer Engine's column-
/// and row-parallel linear layers, its grouped ones, the table of words and the output layer; whole are norms, biases, routers, what else
/// is no matrix of a linear layer, and linear layers that tp does not divide: latent projections unless they are asked for, downward
/// projections of latent attention and its indexer.
[[nodiscard]] std::int64_t weight_parts(const Parameter& parameter, const WeightShards& shards);

/// The part of the parameter that a rank holds: its rows padded to a multiple of the parts times 16, 32 with mxfp8
/// (gtp_remat_shard_dim0), and divided.
[[nodiscard]] Parameter held_part(Parameter parameter, const TrainingSpec& training);

/// How the buffers of such parts are laid out: over the ranks that hold the same part, which gradients are summed over the others for.
[[nodiscard]] model::BufferOptions over_parts(model::BufferOptions options, const WeightShards& shards);

/// Bytes of buffers, which stay from the first step on.
struct GatherBuffers {
    std::int64_t weights = 0;    ///< gathered ones
    std::int64_t gradients = 0;  ///< whole ones, and the parts that are summed of them
    GatherBuffers& operator+=(const GatherBuffers& other) {
        weights += other.weights;
        gradients += other.gradients;
        return *this;
    }
};

/// The buffers of a rank. Weights of one shape and type share theirs, but neighbours in order of use, which have two
/// (_ensure_no_shared_buffer_with): one is gathered while the other is read. Of experts they share them by their number on the rank; those
/// of experts, and of their gradients, are two, which layers take in turns (GTPWeightCache, _get_cache_key). Quantised weights have one
/// along rows and one along columns; where a quantised forward is repeated, Transformer Engine's checkpoint has it gather into others
/// (megatron/core/recompute.py).
class GatherBufferList {
public:
    GatherBufferList(const TrainingSpec& training, int compute_capability) : training_(training), compute_capability_(compute_capability) {}

    /// A parameter as tp leaves it to a rank, of so many layers of it.
    struct Use {
        bool multiplied = true;  ///< products give its gradient, whole, and not a table's own backward, which is over soon
        bool in_bf16 = false;    ///< of a layer whose products stay in 16 bits beside quantised ones
        bool repeated = false;   ///< of a layer whose forward runs again in its backward
        bool next = false;       ///< used right behind the one that was added before it
    };
    void add(const Parameter& parameter, std::int64_t layers, Use use);
    [[nodiscard]] GatherBuffers bytes() const;
    /// The same one by one, as an allocator is asked for them.
    [[nodiscard]] std::vector<std::int64_t> weights_one_by_one() const;
    [[nodiscard]] std::vector<std::int64_t> gradients_one_by_one() const;

private:
    const TrainingSpec& training_;
    int compute_capability_;
    using Shape = std::pair<std::int64_t, std::int64_t>;          ///< rows and columns, padded
    using Kind = std::tuple<std::int64_t, std::int64_t, bool>;    ///< and whether it is quantised
    using BytesAndTurns = std::pair<std::int64_t, std::int64_t>;  ///< and how many take turns, of which more than two are two
    std::map<Kind, BytesAndTurns> weights_;
    std::map<Shape, std::int64_t> gradients_;  ///< as products give them, which nothing follows before they are reduced
    std::map<Shape, BytesAndTurns> summed_;    ///< what the reduction leaves
    /// Those of experts by role, number and type.
    std::map<std::tuple<bool, std::int64_t, bool>, BytesAndTurns> expert_weights_;
    std::map<std::pair<bool, std::int64_t>, BytesAndTurns> expert_gradients_;
    std::optional<Kind> last_;  ///< added, experts left aside
};

}  // namespace mgplan::simulator
