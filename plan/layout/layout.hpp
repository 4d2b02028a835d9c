#pragma once
// One way to spread a model over a world: parallel sizes, schedule, stage split, recompute. Field names as in CLI.md.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout/rank_groups.hpp"
#include "plan/layout/stage_split.hpp"
#include "plan/schedule/pipeline_order.hpp"
#include "plan/text/enum_set.hpp"

namespace mgplan {

struct LayoutSwitches;

enum class Recompute : std::uint8_t { none, selective, full };
enum class RecomputeMethod : std::uint8_t { uniform, block };
/// Modules of Megatron-LM's --recompute-modules.
enum class RecomputeModule : std::uint8_t { core_attn, mlp, moe_act, layernorm, mla_up_proj, moe, shared_experts, mhc };
/// Scopes of --cuda-graphs (CLI.md).
enum class CudaGraphScope : std::uint8_t { attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration };
/// Exchange of keys and values between context-parallel ranks (Megatron-LM's --cp-comm-type).
enum class CpCommType : std::uint8_t { p2p, all_gather, a2a, a2a_p2p };
/// Training framework to predict: this project's runtime, or Megatron-LM with Transformer Engine.
enum class Engine : std::uint8_t { mgplan, megatron };

/// A layout in the planner's or a plan's hands satisfies every rule of planner/constraints.hpp for its model and world.
struct Layout {
    ParallelSizes sizes;  ///< world, tp, cp, ep, etp, pp, order
    int vpp = 1;          ///< model chunks per pipeline rank; 1: not interleaved
    /// Nothing: what Megatron-LM runs on this pp and vpp (plan/layout/layout_schedule.hpp names it).
    std::optional<SplitSchedule> schedule;
    std::int64_t group_size = 1;  ///< microbatch group of the interleaved schedule; pp otherwise
    std::int64_t micro_batch = 1;
    std::int64_t num_microbatches = 1;
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    Recompute recompute = Recompute::none;
    EnumSet<RecomputeModule> recompute_modules;       ///< of selective
    std::optional<RecomputeMethod> recompute_method;  ///< of full
    /// full: layers per checkpoint (uniform) or layers recomputed per stage (block). selective with the module mhc: layers whose
    /// streams are made again together, 0 = all of a chunk.
    std::int64_t recompute_num_layers = 0;
    EnumSet<CudaGraphScope> cuda_graphs;
    Engine engine = Engine::mgplan;
    std::shared_ptr<const StageSplit> split;  ///< never null in a valid layout; shared between layouts of equal (pp, vpp)
    /// Options switched on for this layout and not for its workload (plan/layout/layout_switches.hpp); null: none.
    std::shared_ptr<const LayoutSwitches> switches;

    [[nodiscard]] std::int64_t dp() const { return sizes.dp(); }
    [[nodiscard]] std::int64_t edp() const { return sizes.edp(); }
};

/// Equal when every field is, the split and the switches compared by value.
[[nodiscard]] bool operator==(const Layout& a, const Layout& b);

/// The same with nothing recomputed and no CUDA graphs, in which branches of a search differ.
[[nodiscard]] Layout without_tail(const Layout& layout);

[[nodiscard]] std::string_view to_string(Recompute value);
[[nodiscard]] std::string_view to_string(RecomputeMethod value);
[[nodiscard]] std::string_view to_string(RecomputeModule value);
[[nodiscard]] std::string_view to_string(CudaGraphScope value);
[[nodiscard]] std::string_view to_string(CpCommType value);
[[nodiscard]] std::string_view to_string(Engine value);

/// The enumerator of a name as to_string() writes it, or nothing.
[[nodiscard]] std::optional<Recompute> parse_recompute(std::string_view text);
[[nodiscard]] std::optional<RecomputeMethod> parse_recompute_method(std::string_view text);
[[nodiscard]] std::optional<RecomputeModule> parse_recompute_module(std::string_view text);
[[nodiscard]] std::optional<CudaGraphScope> parse_cuda_graph_scope(std::string_view text);
[[nodiscard]] std::optional<CpCommType> parse_cp_comm_type(std::string_view text);
[[nodiscard]] std::optional<Engine> parse_engine(std::string_view text);

/// All names of one kind in the order of the enumerators, for option declarations and messages.
[[nodiscard]] std::vector<std::string> recompute_names();
[[nodiscard]] std::vector<std::string> recompute_method_names();
[[nodiscard]] std::vector<std::string> recompute_module_names();
[[nodiscard]] std::vector<std::string> cuda_graph_scope_names();
[[nodiscard]] std::vector<std::string> cp_comm_type_names();
[[nodiscard]] std::vector<std::string> engine_names();

/// The names of a set's members in the order of the enumerators.
[[nodiscard]] std::vector<std::string> names_in(EnumSet<RecomputeModule> set);
[[nodiscard]] std::vector<std::string> names_in(EnumSet<CudaGraphScope> set);

/// One comparable line for logs and tests: "tp2 cp1 ep8 etp1 pp4 vpp2 mbs1 sp p2p selective", followed by the modules of selective
/// recompute unless they are core_attn alone, and by the options that are switched on.
[[nodiscard]] std::string summary(const Layout& layout);

}  // namespace mgplan
