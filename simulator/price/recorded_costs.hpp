#pragma once
// Costs of the kinds of layers of one shard, computed from recorded ops.

#include <array>
#include <cstdint>
#include <memory>

#include "plan/layout/rank_groups.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/memory/shard_layers.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/exchange_schedule.hpp"
#include "simulator/price/op_price.hpp"
#include "simulator/price/shard.hpp"

namespace mgplan::simulator {

/// Seconds of a started collective over the links of its group; a send and a receive that start together run concurrently.
[[nodiscard]] double collective_seconds(const PieceStep& start, const LayoutPaths& paths, const Calibration& calibration);

/// Share of its time by which a started collective slows down concurrent ops: the share of the multiprocessors that it occupies, or if
/// unknown Calibration::overlap_cost.
[[nodiscard]] double overlap_cost(const PieceStep& start, const Calibration& calibration);

/// Time of a piece: its forward and its backward, each simulated on its streams.
[[nodiscard]] PieceCost price_piece(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard);

/// Additional exposed tp communication of a backward if weight gradients run in a separate pass: its gathers, which move there too, and its
/// reductions then run without concurrent ops. Sums of biases, which would still run, are left out.
[[nodiscard]] double division_seconds(const PieceSteps& backward, const Shard& shard);

/// The passes of a MoE half-layer, divided at their exchanges.
struct MixtureNodes {
    ExchangeNodes forward, backward;
};
[[nodiscard]] MixtureNodes mixture_nodes(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard);

/// Moves the seconds of dispatch and combine that another microbatch's computation hides (shown_exchanges() of two passes over such a
/// layer) from the cost of `layer`, the sum of `mixer` and `mixture`, to its `hidden`, and adds the schedule's launches by the host.
/// `shard`: of a model with experts.
void hide_exchanges(LayerCosts::Layer& layer, const PieceCost& mixer, const MixtureNodes& mixture, const Shard& shard);

/// Properties of the links of a layout's groups, in addition to the sizes of its shard. In the default order of axes the strides of tp, cp,
/// ep and etp follow from their sizes, and the fields keep their defaults; other orders set all of them.
struct LinksKey {
    std::int64_t pp = 0, world = 0;
    std::int64_t packed_over = 0;  ///< with packed sequences: number of data-parallel ranks, the busiest of which counts
    std::array<Axis, 5> order{};
    bool operator==(const LinksKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [pp_, world_, packed_over_, order_] = *this;
        FieldHash axes;
        for (const Axis axis : order_) axes.add(axis);
        return hash_of(pp_, world_, packed_over_, axes.value());
    }
};

/// Everything that the costs of a layout's layers depend on, or those of a part of them.
struct CostKey {
    ShardKey shard;
    LinksKey links;
    bool paired = false;    ///< passes of another microbatch hide exchanges of experts; of whole layers
    bool divided = false;   ///< backwards run as two passes, the second for weight gradients; of a part: Shard::of_division
    std::int64_t rows = 0;  ///< of a MoE layer alone
    std::size_t layer = 0;  ///< its index in LayerKinds::feed_forwards
    bool operator==(const CostKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [shard_, links_, paired_, divided_, rows_, layer_] = *this;
        return hash_of(shard_, links_, paired_, divided_, rows_, layer_);
    }
};

/// Costs of layers computed from recordings of model/, modified for engine megatron by its policies. Each half-layer is computed once for
/// all layouts with equal key, from the same recordings as its memory. A ring of more than four ranks is extrapolated from rings of two and
/// four ranks with the same number of rows each: every further rank adds the same step. Not thread-safe. Workload and `records` must
/// outlive it.
class RecordedCosts {
public:
    /// Shares the half-layers of `others`, if not null, whose workload is equal; `others` may belong to another thread.
    RecordedCosts(const Workload& workload, ShardLayers& records, const RecordedCosts* others);
    ~RecordedCosts();
    RecordedCosts(const RecordedCosts&) = delete;
    RecordedCosts& operator=(const RecordedCosts&) = delete;

    /// `key`: of the shard's layout. `sizes`: ShardLayers::sizes() of it.
    [[nodiscard]] LayerCosts of(const CostKey& key, const Shard& shard, const PieceSizes& sizes);
    /// Costs with MoE layers at zero; does not record them.
    [[nodiscard]] LayerCosts without_mixtures(const CostKey& key, const Shard& shard, const PieceSizes& sizes);

private:
    struct Priced;
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
