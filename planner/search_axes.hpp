#pragma once
// Axes of a search beyond sizes, micro-batch, vpp and kinds of recompute: what recipes of Megatron-LM switch on. `plan --search` names
// them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/text/errors.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"

namespace mgplan::planner {

enum class SearchAxis : std::uint8_t {
    vpp,          ///< chunks of unequal layers beyond kUsualChunks too
    dispatcher,   ///< of experts' tokens: alltoall, deepep, hybridep
    recompute,    ///< sets of modules of selective recompute
    block,        ///< full recompute of the first layers of each chunk alone
    tp_overlap,   ///< --tp-comm-overlap
    moe_overlap,  ///< --overlap-moe-expert-parallel-comm
    optimizer,    ///< gradients in bf16, and moments too
    cuda_graphs,  ///< of layers, as far as dropless experts allow, or of the whole iteration
};

/// What `--search` asks for.
struct SearchAxes {
    std::vector<SearchAxis> axes;
    bool few_module_sets = false;                              ///< of axis recompute: those of published recipes alone
    bool all_graph_sets = false;                               ///< of axis cuda-graphs: all sets of graph_sets(), not the first alone
    std::optional<EnumSet<RecomputeModule>> own_modules = {};  ///< of axis recompute: what the job itself recomputes, tried first

    [[nodiscard]] bool contains(SearchAxis axis) const;
    /// Leaves an axis out: something else pins it.
    void pin(SearchAxis axis);
};

/// "vpp", "dispatcher", …, by enumerator.
[[nodiscard]] std::string_view to_string(SearchAxis axis);

/// Reads wide (all axes, with one set of graphs), recipe (dispatcher, tp-overlap, moe-overlap, and recompute with a few sets), or axes with
/// commas between them.
[[nodiscard]] SearchAxes read_search_axes(std::string_view text, Problems& problems);

/// Adds the axes to a space, as far as model, training and engine have them: engine mgplan has no dispatchers, overlaps of tp and experts,
/// or bf16 moments of its own. What the job says already stays the first choice of each axis.
void widen(SearchSpace& space, const SearchAxes& axes, const Workload& workload);

/// Searches these dispatchers of experts' tokens, whatever the workload's is.
void choose_dispatchers(SearchSpace& space, const std::vector<TokenDispatcher>& dispatchers, const Workload& workload);

/// Sets of modules that selective recompute frees memory with in this model, the cheapest to repeat first: not core_attn where attention is
/// fused (transformer_config.py warns of it), no moe_act or layernorm under fp8 with delayed scaling (it refuses them).
[[nodiscard]] std::vector<EnumSet<RecomputeModule>> useful_module_sets(const Workload& workload, bool few);

/// Sets of scopes of CUDA graphs that recipes use with this model, the most used first: those of layers, for dropless mixtures also router
/// and preparation without attention, and for engine megatron the whole iteration (Megatron-Bridge and Megatron-LM, recipes of 25.11
/// to 26.08). What a layout's dispatcher or recompute forbids, the rules turn away.
[[nodiscard]] std::vector<EnumSet<CudaGraphScope>> graph_sets(const Workload& workload, Engine engine);

}  // namespace mgplan::planner
