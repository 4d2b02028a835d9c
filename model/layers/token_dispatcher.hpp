#pragma once
// Sends token copies to the ranks that hold their experts, and back (Megatron-LM transformer/moe/token_dispatcher.py,
// MoEAlltoAllTokenDispatcher).

#include <cstdint>
#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/routing_log.hpp"
#include "model/ops/router.hpp"

namespace mgplan::model {

/// The order and counts of a pass's copies that a device computes by itself, so that CUDA graphs can hold them.
struct SortedCopies {
    Permutation permutation;  ///< of this rank's own copies
    /// Copies of each expert from every rank, [etp rank][ep rank][expert] int32: the sizes of the exchange. Undefined where
    /// every expert's copies are padded to capacity, so that sizes are known.
    Tensor counts;
};

/// Destinations of the copies of one pass; host values.
struct DispatchPlan {
    std::vector<std::int64_t> send_rows;                 ///< to each ep rank
    std::vector<std::int64_t> receive_rows;              ///< from each ep rank
    std::vector<std::int64_t> etp_rows;                  ///< that each etp rank brings
    std::vector<std::int64_t> arriving, arriving_order;  ///< blocks (etp rank, ep rank, local expert), and which comes i-th by expert
    std::vector<std::int64_t> sorted, sorted_order;      ///< the same blocks by (local expert, etp rank, ep rank), and the way back
                                                         ///< (on shapes all four name one block of all rows)
    std::int64_t blocks = 0;                             ///< number of these blocks with rows; on shapes all rows are in one
    std::vector<std::int64_t> per_expert;                ///< rows of each local expert
};

/// An all-to-all over ep, then with etp > 1 a gathering of all etp ranks' rows, then sorting by local expert: each expert's
/// rows are contiguous. The way back is the reverse, with partial sums scattered over etp. Each of the two ways is the
/// other's backward.
class AllToAllDispatcher {
public:
    AllToAllDispatcher(const Mixture& mixture, const LayerSite& site) : mixture_(mixture), number_(site.number) {}

    /// `kept`: (rows, top_k) experts, negative where dropped. Exchanges the counts over ep and etp, unless every expert's
    /// copies are padded to capacity. The host reads nothing, unless copies are dropped and not padded: their number then is a
    /// size. The meta device takes that from the context's routing log, or a balanced one.
    [[nodiscard]] SortedCopies sort(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& kept) const;
    /// Reads the counts: the host waits for them. `rows`: of this rank before they are copied. The meta device takes counts from
    /// the context's routing log, or balanced ones.
    [[nodiscard]] DispatchPlan plan(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& counts,
                                    std::int64_t rows) const;

    /// Rows (copies, width) in the order of the plan's permutation -> rows of the local experts.
    [[nodiscard]] Tensor to_experts(const RankContext& context, const DispatchPlan& plan, Tensor x) const;
    /// The way back, summed over etp.
    [[nodiscard]] Tensor from_experts(const RankContext& context, const DispatchPlan& plan, Tensor x) const;

private:
    /// Copies of each expert when `rows` rows choose in turn, as route() does with `balanced`.
    [[nodiscard]] std::vector<std::int64_t> balanced_copies(std::int64_t rows) const;
    /// Every rank's counts, [etp rank][ep rank][expert].
    [[nodiscard]] static Tensor gather_counts(const RankContext& context, Tensor counts);
    /// A pass's counts, [etp rank][ep rank][expert], on the meta device: empty if all ranks have equal numbers of copies of
    /// each expert, which are in `alike` then.
    [[nodiscard]] RoutingTable known_counts(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows,
                                            std::vector<std::int64_t>& alike) const;

    Mixture mixture_;
    std::int64_t number_;
};

}  // namespace mgplan::model
