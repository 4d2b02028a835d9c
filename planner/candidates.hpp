#pragma once
// Which layouts exist for a workload: every combination that the rules allow, each visited once.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "planner/constraints.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// What is searched. An empty list means every value that can be legal: divisors for the sizes, powers of two up to 16
/// for the micro-batch, 1 to kUsualChunks for vpp and beyond that as far as chunks of equal layers go (with a pipeline layout: the chunks
/// it makes). Repeated values count once.
struct SearchSpace {
    std::vector<std::int64_t> tp, cp, ep, etp, pp, vpp, micro_batch;
    std::vector<Recompute> recompute{Recompute::none, Recompute::selective, Recompute::full};
    EnumSet<RecomputeModule> recompute_modules{RecomputeModule::core_attn};
    RecomputeMethod recompute_method = RecomputeMethod::uniform;
    std::int64_t recompute_num_layers = 1;
    std::int64_t mhc_recompute_layers = 0;  ///< of sets of modules with mhc: layers of a block, 0: all of a chunk
    std::optional<bool> sequence_parallel;  ///< nothing: both, where tp > 1
    std::vector<CpCommType> cp_comm_types{CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a};
    std::optional<std::int64_t> group_size;
    std::optional<std::string> pipeline_layout;
    std::vector<AxisOrder> orders{AxisOrder{}};  ///< at least one; of orders that make the same groups of a layout the first counts
    EnumSet<CudaGraphScope> cuda_graphs;
    Engine engine = Engine::mgplan;
    // What search_axes.hpp adds.
    bool unequal_chunks = false;                                   ///< vpp beyond kUsualChunks with chunks of unequal layers too
    std::vector<EnumSet<RecomputeModule>> more_recompute_modules;  ///< sets that selective recompute takes in place of recompute_modules
    bool recompute_blocks = false;                                 ///< full recompute also of the first 1, 2, 4 … layers of each chunk
    std::vector<EnumSet<CudaGraphScope>> more_cuda_graphs;         ///< in place of cuda_graphs
    std::vector<std::shared_ptr<const LayoutSwitches>> switches{nullptr};  ///< Layout::switches
};

/// Chunks of a rank up to which every number is searched, whether or not their layers are equal.
inline constexpr int kUsualChunks = 8;

/// The stage split of one (pp, vpp): the pinned layout string's, or the automatic one.
struct SplitChoice {
    int vpp = 1;
    std::shared_ptr<const StageSplit> split;  ///< null: there is none
    std::string refusal;                      ///< why a pinned layout string has none here
};

/// A part of the space that one thread enumerates: fixed tp, cp and pp.
struct Prefix {
    std::int64_t tp, cp, pp;
    std::shared_ptr<const std::vector<SplitChoice>> splits;  ///< for every vpp; shared by all prefixes of one pp
    std::size_t part;                                        ///< its place in the list
};

/// The legal prefixes; rejected ones are counted. A prefix that a rule turns away counts as one candidate.
[[nodiscard]] std::vector<Prefix> prefixes(const Workload& workload, const SearchSpace& space, CandidateCounts& counts);

/// Visits every legal layout behind a prefix. The reference is valid during the call only; copy what is kept.
void visit_layouts(const Workload& workload, const SearchSpace& space, const Prefix& prefix, CandidateCounts& counts,
                   const std::function<void(const Layout&)>& visit);

class LegalTails;

/// Who is asked before layouts are visited.
struct LayoutVisitor {
    std::function<void(const Layout&)> visit;
    /// Layouts that differ in recompute, CUDA graphs and switches alone: whether they are visited. `first` is one of them. They count as
    /// legal in any case. Without it all are visited.
    std::function<bool(const Layout& first, std::int64_t layouts)> enter = {};
    /// The same for those of them that agree in their switches too.
    std::function<bool(const Layout& first, std::int64_t layouts)> enter_switched = {};
    /// Tails of this workload and space, for many prefixes; without it each finds them anew.
    LegalTails* tails = nullptr;
};
void visit_layouts(const Workload& workload, const SearchSpace& space, const Prefix& prefix, CandidateCounts& counts,
                   const LayoutVisitor& visitor);

/// Why a search found no legal layout, as messages with a way out: the pinned lists of which no value is legal whatever
/// the other sizes are; where there is none, what turned away the candidates that came farthest.
[[nodiscard]] std::vector<std::string> why_nothing_is_legal(const Workload& workload, const SearchSpace& space,
                                                            const CandidateCounts& counts);

}  // namespace mgplan::planner
