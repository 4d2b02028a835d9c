#pragma once
// Costs of the kinds of layer of one shard, read from their records.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "plan/layout/rank_groups.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/exchange_schedule.hpp"
#include "simulator/price/op_price.hpp"
#include "simulator/price/shard.hpp"

namespace mgplan::simulator {

/// Seconds of a started collective over the links of its group; sends and receives that started together run at once, each way.
[[nodiscard]] double collective_seconds(const PieceStep& start, const LayoutPaths& paths, const Calibration& calibration);

/// Share of its time that a started collective takes from the ops beside it: that of the multiprocessors which it holds, or as assumed
/// (Calibration::overlap_cost).
[[nodiscard]] double overlap_cost(const PieceStep& start, const Calibration& calibration);

/// Time of a piece: its forward and its backward played on their streams.
[[nodiscard]] PieceCost price_piece(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard);

/// A mixture's passes cut at its exchanges.
struct MixtureNodes {
    ExchangeNodes forward, backward;
};
[[nodiscard]] MixtureNodes mixture_nodes(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard);

/// Another microbatch's computation hides dispatch and combine of `layer`, which is the cost of `mixer` and `mixture`, as
/// shown_exchanges() says of two passes over such a layer; the host issues the nodes of that schedule. `shard`: with experts.
void hide_exchanges(PieceCost& layer, const PieceCost& mixer, const MixtureNodes& mixture, const Shard& shard);

/// Which links a layout's groups have, beside the sizes of its shard. In the default order of axes the strides of tp, cp, ep and etp follow
/// from their sizes, and the fields keep their defaults; other orders need all of them.
struct LinksKey {
    std::int64_t pp = 0, world = 0;
    std::int64_t packed_over = 0;  ///< of packed sequences: the ranks whose busiest one is priced
    std::array<Axis, 5> order{};
    bool operator==(const LinksKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [pp_, world_, packed_over_, order_] = *this;
        FieldHash axes;
        for (const Axis axis : order_) axes.add(axis);
        return hash_of(pp_, world_, packed_over_, axes.value());
    }
};

/// Records of a shard with their steps, under the engine's policies. Dense pieces are those of one of LayerKinds::plain_layers.
/// `two_parts`: dense pieces of a sequence over two ranks of a ring, with as many rows on each as `dense`, which has four parts for a
/// longer one. `mixture`: of so uneven rows as trace_mixture() takes.
struct ShardRecords {
    using Record = std::shared_ptr<const PieceTrace>;
    std::function<Record(const PieceSizes&, std::size_t plain_layer)> dense, two_parts;
    std::function<Record(const PieceSizes&)> prediction;
    std::function<Record(const PieceSizes&, double received)> mixture;
};

/// Costs of layers read from records of model/, with what engine megatron does otherwise as its policies say. A half layer is priced once
/// for all layouts that it is the same for, from the recordings that its memory is read from. A ring of more than four ranks is priced by
/// those of two and of four with as many rows each: every further rank adds the same step. Not thread-safe. The workload and what
/// `records` refers to must outlive it.
class RecordedCosts {
public:
    /// With the prices of `others`, if any, of a workload that differs in nothing but what LayoutSwitches change; another thread may have
    /// them.
    RecordedCosts(const Workload& workload, ShardRecords records, const RecordedCosts* others);
    ~RecordedCosts();
    RecordedCosts(const RecordedCosts&) = delete;
    RecordedCosts& operator=(const RecordedCosts&) = delete;

    /// `sizes` and `links` are those of the shard's layout.
    [[nodiscard]] LayerCosts of(const Shard& shard, const PieceSizes& sizes, const LinksKey& links);
    /// The same with mixtures that take no time: nothing of theirs is recorded.
    [[nodiscard]] LayerCosts without_mixtures(const Shard& shard, const PieceSizes& sizes, const LinksKey& links);

private:
    struct Priced;
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
