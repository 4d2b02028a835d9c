#pragma once
// Bytes for weights split over neighbouring ranks (plan/training/weight_shards.hpp), in addition to the state of a rank's own part: buffers
// for the gathered weights, and for their gradients.

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

/// Number of parts into which neighbours split the parameter; 1 if each holds all of it. Split: the weights of Transformer Engine's column-
/// and row-parallel linear layers, its grouped ones, the embedding table and the output layer. Whole: norms, biases, routers, all other
/// parameters that are no matrix of a linear layer, and linear layers that tp does not divide: latent projections unless opted in, down
/// projections of latent attention and its indexer.
[[nodiscard]] std::int64_t weight_parts(const Parameter& parameter, const WeightShards& shards);

/// The part of the parameter that a rank holds: its rows padded to a multiple of the parts times 16, 32 with mxfp8 (gtp_remat_shard_dim0),
/// and divided.
[[nodiscard]] Parameter held_part(Parameter parameter, const TrainingSpec& training);

/// Options for the buffers of such parts: sharded over the ranks that hold the same part, and gradients summed over the other ranks.
[[nodiscard]] model::BufferOptions over_parts(model::BufferOptions options, const WeightShards& shards);

/// Bytes of buffers, which stay from the first step on.
struct GatherBuffers {
    std::int64_t weights = 0;    ///< gathered weights
    std::int64_t gradients = 0;  ///< whole gradients, and the reduced parts
    GatherBuffers& operator+=(const GatherBuffers& other) {
        weights += other.weights;
        gradients += other.gradients;
        return *this;
    }
};

/// The buffers of a rank. Weights of equal shape and type share one buffer, or two if they are neighbours in order of use
/// (_ensure_no_shared_buffer_with): one is gathered while the other is read. Experts' weights share buffers by their number on the rank;
/// these, and those of their gradients, are two, which layers use alternately (GTPWeightCache, _get_cache_key). Quantised weights have one
/// buffer along rows and one along columns; if a quantised forward is recomputed, Transformer Engine's checkpoint gathers into further
/// buffers (megatron/core/recompute.py).
class GatherBufferList {
public:
    GatherBufferList(const TrainingSpec& training, int compute_capability) : training_(training), compute_capability_(compute_capability) {}

    /// Use of a rank's tp shard of a parameter.
    struct Use {
        bool multiplied = true;  ///< GEMMs write its whole gradient, unlike the short backward of an embedding table
        bool in_bf16 = false;    ///< its layer's GEMMs stay in 16 bits while others are quantised
        bool repeated = false;   ///< its layer's forward is recomputed
        bool next = false;       ///< used directly after the parameter that was added before it
    };
    void add(const Parameter& parameter, std::int64_t layers, Use use);
    [[nodiscard]] GatherBuffers bytes() const;
    /// Bytes of each buffer, as a list of single allocations.
    [[nodiscard]] std::vector<std::int64_t> weights_one_by_one() const;
    [[nodiscard]] std::vector<std::int64_t> gradients_one_by_one() const;

private:
    const TrainingSpec& training_;
    int compute_capability_;
    using Shape = std::pair<std::int64_t, std::int64_t>;          ///< rows and columns, padded
    using Kind = std::tuple<std::int64_t, std::int64_t, bool>;    ///< rows, columns, and true if quantised
    using BytesAndTurns = std::pair<std::int64_t, std::int64_t>;  ///< bytes, and the number of users in turn; above two it counts as two
    std::map<Kind, BytesAndTurns> weights_;
    std::map<Shape, std::int64_t> gradients_;  ///< written by GEMMs, and reduced before the next one
    std::map<Shape, BytesAndTurns> summed_;    ///< results of the reduction
    /// Experts' buffers, by role, number and type.
    std::map<std::tuple<bool, std::int64_t, bool>, BytesAndTurns> expert_weights_;
    std::map<std::pair<bool, std::int64_t>, BytesAndTurns> expert_gradients_;
    std::optional<Kind> last_;  ///< the last one added, experts left aside
};

}  // namespace mgplan::simulator
