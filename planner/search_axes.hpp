#pragma once
// Axes of a search beyond sizes, micro-batch, vpp and kinds of recompute: features that recipes of Megatron-LM enable. `plan` searches
// those that leave the trained numbers as they are; `--search` selects others.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/text/errors.hpp"
#include "plan/training/data_sharding.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"

namespace mgplan::planner {

enum class SearchAxis : std::uint8_t {
    stages,       ///< a split by the layers' work next to the automatic one
    sharding,     ///< FSDP, and HSDP inside NVLink domains, next to the job's own sharding
    vpp,          ///< chunks of unequal layers beyond kUsualChunks too
    dispatcher,   ///< dispatcher of experts' tokens: alltoall, deepep, hybridep
    recompute,    ///< module sets of selective recompute
    block,        ///< full recompute of only the first layers of each chunk
    tp_overlap,   ///< --tp-comm-overlap
    moe_overlap,  ///< --overlap-moe-expert-parallel-comm
    optimizer,    ///< gradients in bf16, and moments too
    cuda_graphs,  ///< graphs of layers, as far as dropless experts allow, or of the whole iteration
};

/// The axes of a search.
struct SearchAxes {
    std::vector<SearchAxis> axes;
    bool few_module_sets = false;                              ///< axis recompute: only the sets of published recipes
    bool all_graph_sets = false;                               ///< axis cuda-graphs: all sets of graph_sets(), not only the first
    std::optional<EnumSet<RecomputeModule>> own_modules = {};  ///< axis recompute: the job's own set, tried first

    [[nodiscard]] bool contains(SearchAxis axis) const;
    /// Removes an axis whose value is pinned elsewhere.
    void pin(SearchAxis axis);
};

/// "vpp", "dispatcher", …, by enumerator.
[[nodiscard]] std::string_view to_string(SearchAxis axis);

/// The axes of a search without `--search`: all that leave the trained numbers as they are, with one set of graphs.
[[nodiscard]] SearchAxes usual_axes();

/// Reads plain (no axes), wide (all axes, with one set of graphs), recipe (dispatcher, tp-overlap, moe-overlap, and recompute with a few
/// sets), or axes separated by commas.
[[nodiscard]] SearchAxes read_search_axes(std::string_view text, Problems& problems);

/// Adds the axes to a space, as far as model, training and engine support them: engine mgplan has no dispatchers, overlaps of tp and
/// experts, or bf16 moments. The job's own values stay the first choice of each axis.
void widen(SearchSpace& space, const SearchAxes& axes, const Workload& workload);

/// The space with the first choice of each axis only.
[[nodiscard]] SearchSpace first_choices(SearchSpace space);

/// Searches these dispatchers of experts' tokens, whatever the workload's own.
void choose_dispatchers(SearchSpace& space, const std::vector<TokenDispatcher>& dispatchers, const Workload& workload);

/// Shardings that a search tries next to the workload's own: none if the workload divides its state in another way already, or has features
/// that Megatron-FSDP lacks (arguments.py, validate_args, at d98e8a64: an optimizer other than Adam and SGD, the host's optimizer, weight
/// shards, gradients reduced without overlap).
[[nodiscard]] std::vector<DataShardingChoice> more_shardings(const Workload& workload);

/// Module sets with which selective recompute frees memory in this model, the cheapest first: no core_attn if attention is fused
/// (transformer_config.py warns of it), no moe_act or layernorm under fp8 with delayed scaling (it refuses them).
[[nodiscard]] std::vector<EnumSet<RecomputeModule>> useful_module_sets(const Workload& workload, bool few);

/// Sets of CUDA graph scopes that recipes use with this model, the most used first: those of layers, for dropless MoE also router and
/// preprocessing without attention, and for engine megatron the whole iteration (Megatron-Bridge and Megatron-LM, recipes of 25.11 to
/// 26.08). Rules reject sets that a layout's dispatcher or recompute forbids.
[[nodiscard]] std::vector<EnumSet<CudaGraphScope>> graph_sets(const Workload& workload, Engine engine);

}  // namespace mgplan::planner
