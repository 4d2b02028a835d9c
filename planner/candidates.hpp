#pragma once
// Enumerates the layouts of a workload: every combination that the rules allow, each once.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/layout/balanced_split.hpp"
#include "plan/layout/layout.hpp"
#include "plan/training/data_sharding.hpp"
#include "plan/workload.hpp"
#include "planner/constraints.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// The searched values. An empty list means every value that can be legal: divisors for the sizes,
/// searched_micro_batches() for the micro-batch, 1 to kUsualChunks for vpp and larger ones with chunks of equal layers (with a pipeline
/// layout: its number of chunks). Repeated values count once.
struct SearchSpace {
    std::vector<std::int64_t> tp, cp, ep, etp, pp, vpp, micro_batch;
    std::vector<Recompute> recompute{Recompute::none, Recompute::selective, Recompute::full};
    EnumSet<RecomputeModule> recompute_modules{RecomputeModule::core_attn};
    RecomputeMethod recompute_method = RecomputeMethod::uniform;
    std::int64_t recompute_num_layers = 1;
    std::int64_t mhc_recompute_layers = 0;  ///< for module sets with mhc: layers of a block, 0: all of a chunk
    std::optional<bool> sequence_parallel;  ///< nothing: both, if tp > 1
    std::vector<CpCommType> cp_comm_types{CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a};
    std::optional<std::int64_t> group_size;
    std::optional<std::string> pipeline_layout;
    std::vector<AxisOrder> orders{AxisOrder{}};  ///< at least one; of orders that give a layout the same groups the first counts
    EnumSet<CudaGraphScope> cuda_graphs;
    Engine engine = Engine::mgplan;
    // Set by search_axes.hpp.
    bool unequal_chunks = false;                                   ///< also vpp beyond kUsualChunks with chunks of unequal layers
    std::vector<EnumSet<RecomputeModule>> more_recompute_modules;  ///< if not empty, used instead of recompute_modules
    bool recompute_blocks = false;                          ///< also full recompute of only the first 1, 2, 4 … layers of each chunk
    std::vector<EnumSet<CudaGraphScope>> more_cuda_graphs;  ///< if not empty, used instead of cuda_graphs
    std::vector<std::shared_ptr<const LayoutSwitches>> switches{nullptr};  ///< Layout::switches
    std::vector<DataShardingChoice> shardings;                             ///< rank_layouts(): also the workload with each of these
    std::shared_ptr<const StageLoads> stage_loads;  ///< if set, also a split for each (pp, vpp) that balances this work
};

/// Up to this vpp every number is searched, whether or not the chunks have equal layers.
inline constexpr int kUsualChunks = 8;

/// A stage split of one (pp, vpp): that of the pinned layout string, the automatic one, or one that balances SearchSpace::stage_loads.
struct SplitChoice {
    int vpp = 1;
    std::shared_ptr<const StageSplit> split;  ///< null: there is none
    std::string refusal;                      ///< the reason why a pinned layout string has none here
};

/// A part of the space that one thread enumerates: fixed tp, cp and pp.
struct Prefix {
    std::int64_t tp, cp, pp;
    std::shared_ptr<const std::vector<SplitChoice>> splits;  ///< those of every vpp; shared by all prefixes of one pp
    std::size_t part;                                        ///< index in the list
};

/// The legal prefixes. A prefix rejected by a rule counts as one candidate in `counts`.
[[nodiscard]] std::vector<Prefix> prefixes(const Workload& workload, const SearchSpace& space, CandidateCounts& counts);

/// Visits every legal layout of a prefix. The reference is valid only during the call; copy layouts to keep.
void visit_layouts(const Workload& workload, const SearchSpace& space, const Prefix& prefix, CandidateCounts& counts,
                   const std::function<void(const Layout&)>& visit);

class LegalTails;

/// Callbacks of visit_layouts().
struct LayoutVisitor {
    std::function<void(const Layout&)> visit;
    /// Called once per set of layouts that differ only in recompute, CUDA graphs and switches; `first` is one of them. Returns true if they
    /// are to be visited; they count as legal either way. Without it all are visited.
    std::function<bool(const Layout& first, std::int64_t layouts)> enter = {};
    /// Called like `enter` for subsets that also agree in their switches.
    std::function<bool(const Layout& first, std::int64_t layouts)> enter_switched = {};
    /// Cache of legal tails of this workload and space, shared by many prefixes; null: each call computes its own.
    LegalTails* tails = nullptr;
};
void visit_layouts(const Workload& workload, const SearchSpace& space, const Prefix& prefix, CandidateCounts& counts,
                   const LayoutVisitor& visitor);

/// Reasons why a search found no legal layout, each with a way out: pinned lists without a value that is legal for any other sizes; if
/// there are none, the rules that rejected the candidates at the latest level.
[[nodiscard]] std::vector<std::string> why_nothing_is_legal(const Workload& workload, const SearchSpace& space,
                                                            const CandidateCounts& counts);

}  // namespace mgplan::planner
