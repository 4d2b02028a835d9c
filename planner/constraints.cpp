#include "planner/constraints.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "plan/cluster/nvlink_domains.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/layout_schedule.hpp"
#include "plan/layout/world_division.hpp"
#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/switch_rules.hpp"

namespace mgplan::planner {
namespace {

std::string does_not_divide(std::string_view field, std::int64_t value, std::string_view what, std::int64_t n, std::int64_t world) {
    return fmt::format("{} = {} does not divide {} = {}; use {}", field, value, what, n, usable_divisors(n, world));
}

/// False: the layers are of several kinds, which determine their own divisors (plan/parameters/composed_layer.hpp).
bool has_plain_layers(const ModelSpec& model) {
    return model.kinds.empty();
}

std::int64_t tp_stride(const Layout& layout) {
    for (const auto& axis : dense_grid(layout.sizes)) {
        if (axis.axis == Axis::tp) return axis.stride;
    }
    return 1;
}

/// With tp fastest (every usual order) only the domain's size matters; for other orders all sizes must be set first.
bool tp_is_fastest(const Layout& layout) {
    return layout.sizes.order.axes()[0] == Axis::tp;
}

bool tp_leaves_domain(const Workload& work, std::int64_t tp, std::int64_t stride, std::int64_t world) {
    const std::int64_t domain = used_gpus_of_domain(work.cluster, world);
    if (!work.confine_tp || tp == 1 || world <= domain) return false;
    return domain % (tp * stride) != 0;
}

/// Megatron-Core's MoE guide (megatron/core/transformer/moe/README.md) keeps ep x tp inside the NVLink domain. On nodes of eight GPUs large
/// MoE models cannot; on racks every published recipe does.
bool ep_leaves_domain(const Workload& work, const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    if (!work.confine_ep || sizes.ep == 1 || !spans_nodes(work.cluster)) return false;
    const std::int64_t domain = used_gpus_of_domain(work.cluster, sizes.world);
    if (sizes.world <= domain) return false;
    for (const auto& axis : expert_grid(sizes)) {
        if (axis.axis == Axis::ep) return domain % (axis.size * axis.stride) != 0;
    }
    return false;
}

std::string ep_domain_message(const Workload& work, const Layout& layout) {
    const std::int64_t domain = used_gpus_of_domain(work.cluster, layout.sizes.world);
    return fmt::format("ep = {} leaves the NVLink domain, of whose {} GPUs a job on {} takes {}; use {}, or name the ep with --ep",
                       layout.sizes.ep, work.cluster.nvlink_domain, layout.sizes.world, domain,
                       usable_divisors(std::max<std::int64_t>(1, domain / layout.sizes.etp), work.world));
}

std::string tp_domain_message(const Workload& work, const Layout& layout) {
    const std::int64_t domain = used_gpus_of_domain(work.cluster, work.world);
    return fmt::format("tp = {} leaves the {} of {} GPUs of {}; use {}, or name the tp with --tp", layout.sizes.tp,
                       work.cluster.nvlink_domain > 1 ? "NVLink domain" : "node", domain, work.cluster.name,
                       usable_divisors(domain, work.world));
}

/// Problems of the CUDA graph scopes, except with recompute and with the dispatcher, which a layout may choose (switch_rules.cpp).
std::vector<std::string> graph_problems(const Workload& work, const Layout& layout) {
    Problems problems;
    if (!layout.cuda_graphs.empty()) check_scopes_of_model(layout.cuda_graphs, work.model, problems);
    if (layout.engine == Engine::mgplan && !work.model.kinds.empty() && !layout.cuda_graphs.empty() &&
        !layout.cuda_graphs.contains(CudaGraphScope::full_iteration))
        problems.add(
            "cuda graphs: engine mgplan captures no single layers of {}, which parts describe; use full_iteration or none, or "
            "--engine megatron (mgplan graphs: --policy megatron)",
            work.model.name);
    return problems.list();
}

std::int64_t stages(const Layout& layout) {
    return layout.sizes.pp * layout.vpp;
}

std::vector<std::string> split_schedule_messages(const Workload& w, const Layout& l) {
    std::vector<std::string> messages = split_schedule_problems(l);
    for (const auto& obstacle : split_schedule_obstacles(w.model, w.training, l)) messages.push_back("not run yet: " + obstacle);
    return messages;
}

std::string interleaved_message(const Workload&, const Layout& l) {
    const std::int64_t pp = l.sizes.pp;
    if (l.group_size < pp)
        return fmt::format("group size = {} is below pp = {}; use --group-size {} or more, or vpp 1", l.group_size, pp, pp);
    if (l.group_size > l.num_microbatches)
        return fmt::format(
            "vpp = {} needs at least as many microbatches as its group size = {}, but there are {}; use vpp 1, a smaller micro-batch, "
            "fewer "
            "dp ranks or a larger batch",
            l.vpp, l.group_size, l.num_microbatches);
    return fmt::format(
        "vpp = {}: {} microbatches leave a last group of {} behind groups of {}, which is below pp = {}; use vpp 1, another micro-batch, "
        "another --group-size or a batch of a multiple of {} microbatches",
        l.vpp, l.num_microbatches, l.num_microbatches % l.group_size, l.group_size, pp, l.group_size);
}

/// Upper bound of the activations of a rank at its peak, for any recompute and division; far from exact.
double most_activation_bytes(const Workload& w, const Layout& l) {
    const ModelSpec& model = w.model;
    const auto real = [](std::int64_t value) { return static_cast<double>(value); };
    const double heads = real(model.heads) * real(model.qk_head_dim() + model.v_head_dim());
    double width = 20 * real(model.hidden) + 8 * heads + 8 * real(model.ffn) + 8 * real(std::max(model.vocab, model.padded_rows));
    if (model.moe) {
        width += 8 * real(model.moe->top_k) * real(model.moe->expert_ffn + model.hidden) + 8 * real(model.moe->shared_ffn) +
                 16 * real(model.moe->experts);
    }
    if (!l.cuda_graphs.empty()) width += real(w.batch.sequence);  // a mask
    if (w.training.attention == AttentionBackend::unfused) width += 4 * real(w.batch.sequence) * real(model.heads);
    const double tokens = real(l.micro_batch) * real(w.batch.sequence) / real(l.sizes.cp);
    // In flight on a rank of layers/pp layers: up to 2·pp + (vpp - 1)·group parts of 1/vpp.
    const double copies = real(model.layers + model.mtp_layers + 2) * (2 + real(l.group_size) / real(l.sizes.pp));
    constexpr double kLargestElement = 8;
    return 4 * kLargestElement * width * tokens * copies;
}

bool uses_fsdp2(const Workload& workload, const Layout& layout) {
    return layout.engine == Engine::megatron && workload.training.megatron.fully_sharded.kind == FullyShardedKind::torch_fsdp2;
}

/// Number of parts into which data-parallel neighbours split weights.
WeightShards parts_of_weights(const Workload& workload, const Layout& layout) {
    return layout.engine == Engine::megatron ? workload.training.megatron.weight_shards : WeightShards{};
}

/// "2, 4 or 8": legal values of a weight-shards flag for `ranks` data-parallel ranks and `over` ranks of tensor parallelism.
std::string usable_shards(std::int64_t ranks, std::int64_t over) {
    std::vector<std::string> names;
    for (const auto parts : divisors(ranks)) {
        if (names.size() < 12) names.push_back(std::to_string(parts * over));
    }
    return any_of_text(names);
}

/// The reason, with a way out, why Megatron-LM refuses to run the first and last layers in bf16 (transformer_config.py, __post_init__, at
/// d98e8a64); "" if it accepts.
std::string layers_in_bf16_problem(const Workload& workload, const Layout& layout) {
    const TrainingSpec& training = workload.training;
    const std::int64_t most = std::max(training.megatron.bf16_layers_at_start, training.megatron.bf16_layers_at_end);
    if (layout.engine != Engine::megatron || training.precision != Precision::fp8 || most == 0) return "";
    if (training.megatron.fp8_recipe == Fp8Recipe::delayed)
        return "layers in bf16 (--first-last-layers-bf16) do not go with delayed scaling of fp8; use --precision fp8-current, "
               "fp8-blockwise or mxfp8, or leave that flag out";
    const std::int64_t layers = workload.model.layers / layout.sizes.pp;
    if (most <= layers) return "";
    return fmt::format(
        "pp = {}: {} layers in bf16 at an end of the model (--num-layers-at-start-in-bf16, --num-layers-at-end-in-bf16) are more than the "
        "{} of a pipeline stage; use a pp of at most {}, or fewer layers in bf16",
        layout.sizes.pp, most, layers, std::max<std::int64_t>(1, workload.model.layers / most));
}

using W = const Workload&;
using L = const Layout&;

/// For the rules of tp, cp and pp; the earlier sizes must satisfy theirs.
std::string undivided_world_message(W, L l) {
    return undivided_world(l.sizes).value_or("");
}

/// Obstacles to dividing composed layers over tp.
std::vector<std::string> obstacles_of_tp(W w, L l) {
    if (has_plain_layers(w.model)) return {};
    ParallelSizes sizes = l.sizes;
    sizes.cp = 1;
    return obstacles_of_kinds(w.model, sizes);
}

/// Further obstacles due to cp.
std::vector<std::string> obstacles_of_cp(W w, L l) {
    if (has_plain_layers(w.model) || l.sizes.cp == 1) return {};
    std::vector<std::string> all = obstacles_of_kinds(w.model, l.sizes);
    const std::vector<std::string> known = obstacles_of_tp(w, l);
    std::erase_if(all, [&](const std::string& one) { return std::find(known.begin(), known.end(), one) != known.end(); });
    return all;
}

/// The largest divisor of cp below it that the layers support.
std::int64_t largest_cp_of_layers(W w, L l) {
    Layout smaller = l;
    for (smaller.sizes.cp = l.sizes.cp - 1; smaller.sizes.cp > 1; --smaller.sizes.cp) {
        if (l.sizes.cp % smaller.sizes.cp == 0 && obstacles_of_cp(w, smaller).empty()) break;
    }
    return smaller.sizes.cp;
}

/// True for residual streams as in Megatron-LM's main at d98e8a64 (--enable-mhc-connections), with its limits.
bool main_branch_streams(W w, L l) {
    return l.engine == Engine::megatron && w.model.hyper_connections && !w.model.hyper_connections->learned_head;
}

/// True if attention has latents that are projected up (RecomputeModule::mla_up_proj).
bool projects_latents(const ModelSpec& model) {
    return model.mla.has_value() || has_mixer_with(model, &MixerTraits::projects_latents);
}

/// Number of layers routed by token id (always the first layers) that Megatron-LM would place after the stage with the token ids.
std::int64_t word_layers_behind_words(W w, L l) {
    if (l.engine != Engine::megatron || !l.split || l.sizes.pp == 1) return 0;
    std::int64_t behind = 0;
    for (std::int64_t layer = l.split->chunk(0, 0).decoders; layer < w.model.layers; ++layer)
        behind += chooses_by_words(w.model, layer) ? 1 : 0;
    return behind;
}

constexpr auto kRules = std::to_array<Rule>({
    // ---- tensor ----
    {"cuda_graphs_suit_the_model", "CUDA graphs do not suit the model", Level::tensor,
     [](W w, L l) { return !l.cuda_graphs.empty() && !graph_problems(w, l).empty(); },
     [](W w, L l) { return fmt::format("{}", fmt::join(graph_problems(w, l), "; ")); }},
    {"tp_divides_world", "tp does not divide the world", Level::tensor, [](W, L l) { return l.sizes.world % l.sizes.tp != 0; },
     undivided_world_message},
    {"tp_divides_heads", "tp does not divide the attention heads", Level::tensor,
     [](W w, L l) { return has_plain_layers(w.model) && w.model.heads % l.sizes.tp != 0; },
     [](W w, L l) { return does_not_divide("tp", l.sizes.tp, "attention heads", w.model.heads, w.world); }},
    // Megatron-core transformer_config.py: query groups are a multiple or a divisor of tp (docs/decisions/0004).
    {"tp_divides_kv_heads", "tp does not divide the kv heads, or as a multiple of them their packed projection", Level::tensor,
     [](W w, L l) { return has_plain_layers(w.model) && !packed_heads_divide(w.model, l.sizes.tp); },
     [](W w, L l) {
         return fmt::format(
             "tp = {} does not divide kv heads = {}, nor, as a multiple of them, the {} rows of packed queries, keys and values; use {}",
             l.sizes.tp, w.model.kv_heads, (w.model.heads + 2 * w.model.kv_heads) * w.model.head_dim,
             usable_divisors(w.model.kv_heads, w.world));
     }},
    // Megatron-LM's main at d98e8a64: HyperConnectionTransformerLayer raises on a MoE layer.
    {"residual_streams_without_experts", "residual streams with experts", Level::tensor,
     [](W w, L l) { return main_branch_streams(w, l) && w.model.moe.has_value(); },
     [](W, L) {
         return std::string(
             "Megatron-LM's main has no experts beside residual streams (--enable-mhc-connections); leave one of them out, or use "
             "--enable-hyper-connections of its branch dev");
     }},
    {"tp_divides_parts_of_layers", "tp does not divide the parts of a layer", Level::tensor,
     [](W w, L l) { return !obstacles_of_tp(w, l).empty(); },
     [](W w, L l) { return fmt::format("{}; use a tp that divides them, as 1 does", fmt::join(obstacles_of_tp(w, l), "; ")); }},
    {"adapters_suit_the_job", "adapters (LoRA) with what they are not predicted with", Level::tensor,
     [](W w, L l) { return !adapter_obstacles(w.model, w.training, l.engine == Engine::mgplan).empty(); },
     [](W w, L l) {
         return fmt::format("adapters (LoRA) are not predicted with {}; leave that or the adapters out",
                            fmt::join(adapter_obstacles(w.model, w.training, l.engine == Engine::mgplan), ", "));
     }},
    // Megatron-Bridge peft/utils.py: the rows of an adapter's first matrix are divided.
    {"tp_divides_rank_of_adapters", "tp does not divide the adapters' rank", Level::tensor,
     [](W w, L l) { return w.model.adapters && w.model.adapters->rank % l.sizes.tp != 0; },
     [](W w, L l) { return does_not_divide("tp", l.sizes.tp, "rank of adapters (LoRA)", w.model.adapters->rank, w.world); }},
    {"tp_divides_ffn", "tp does not divide the MLP width", Level::tensor,
     [](W w, L l) { return has_plain_layers(w.model) && has_dense_mlp(w.model) && w.model.ffn % l.sizes.tp != 0; },
     [](W w, L l) { return does_not_divide("tp", l.sizes.tp, "ffn width", w.model.ffn, w.world); }},
    {"tp_divides_shared_ffn", "tp does not divide the shared experts' width", Level::tensor,
     [](W w, L l) { return w.model.moe && w.model.moe->shared_ffn % l.sizes.tp != 0; },
     [](W w, L l) { return does_not_divide("tp", l.sizes.tp, "shared experts' width", w.model.moe->shared_ffn, w.world); }},
    // Megatron-LM core/tensor_parallel/utils.py, VocabUtility: a table without padding is divided too.
    {"tp_divides_padded_vocabulary", "tp does not divide the given rows of the vocabulary", Level::tensor,
     [](W w, L l) { return w.model.padded_rows % l.sizes.tp != 0; },
     [](W w, L l) { return does_not_divide("tp", l.sizes.tp, "padded vocabulary (--padded-vocab-size)", w.model.padded_rows, w.world); }},
    {"tp_inside_nvlink_domain", "tp leaves the NVLink domain", Level::tensor,
     [](W w, L l) { return tp_is_fastest(l) && tp_leaves_domain(w, l.sizes.tp, 1, l.sizes.world); }, tp_domain_message},
    // ---- context ----
    {"tp_cp_divide_world", "tp·cp does not divide the world", Level::context,
     [](W, L l) { return l.sizes.world % (l.sizes.tp * l.sizes.cp) != 0; },
     undivided_world_message},
    {"cp_divides_parts_of_layers", "context parallelism that layers do not take", Level::context,
     [](W w, L l) { return !obstacles_of_cp(w, l).empty(); },
     [](W w, L l) { return fmt::format("{}; use cp {}", fmt::join(obstacles_of_cp(w, l), "; "), largest_cp_of_layers(w, l)); }},
    // Two chunks per rank balance the causal mask (Megatron-core get_batch_on_this_cp_rank).
    {"cp_divides_sequence", "2·cp does not divide the sequence", Level::context,
     [](W w, L l) { return l.sizes.cp > 1 && w.batch.sequence % (2 * l.sizes.cp) != 0; },
     [](W w, L l) {
         return fmt::format("cp = {}: 2·cp does not divide the sequence of {} tokens; use a cp of {} or another --seq", l.sizes.cp,
                            w.batch.sequence, w.batch.sequence % 2 == 0 ? usable_divisors(w.batch.sequence / 2, w.world) : "1");
     },
     true},
    {"cp_needs_flash_attention", "cp needs flash attention", Level::context,
     [](W w, L l) { return l.sizes.cp > 1 && w.training.attention == AttentionBackend::unfused; },
     [](W, L l) {
         return fmt::format("cp = {} needs flash attention, but the attention backend is unfused; use cp 1 or --attention flash",
                            l.sizes.cp);
     },
     true},
    // ---- pipeline ----
    {"tp_cp_pp_divide_world", "tp·cp·pp does not divide the world", Level::pipeline,
     [](W, L l) { return l.sizes.world % (l.sizes.tp * l.sizes.cp * l.sizes.pp) != 0; },
     undivided_world_message},
    {"stages_have_layers", "more pipeline stages than layers", Level::pipeline,
     [](W w, L l) { return l.sizes.pp > w.model.layers + w.model.mtp_layers + 2; },
     [](W w, L l) {
         return fmt::format("pp = {} has more stages than the model's {} layers; use a pp of at most {}", l.sizes.pp, w.model.layers,
                            w.model.layers);
     },
     true},
    // Stages would have to sum the gradients of shared weights and forward keys and embeddings; no method is published.
    {"shared_weights_on_one_stage", "what layers share over pipeline stages", Level::pipeline,
     [](W w, L l) { return l.sizes.pp > 1 && shares_between_layers(w.model); },
     [](W, L l) { return fmt::format("pp = {} over weights, keys or inputs that layers share (Zamba2, Gemma 3n and 4); use pp 1", l.sizes.pp); }},
    // Megatron-LM arguments.py, validate_args: PyTorch's FSDP2 shards whole layers and supports neither stages nor experts' ranks.
    {"fsdp2_without_pipeline", "PyTorch FSDP2 with a pipeline", Level::pipeline,
     [](W w, L l) { return l.sizes.pp > 1 && uses_fsdp2(w, l); },
     [](W, L l) {
         return fmt::format("pp = {}: PyTorch FSDP2 (--use-torch-fsdp2) has no pipeline; use pp 1 or --use-megatron-fsdp", l.sizes.pp);
     }},
    // Megatron-LM transformer_config.py, __post_init__: its stages send one stream of the width of the hidden size.
    {"residual_streams_without_pipeline", "residual streams with a pipeline", Level::pipeline,
     [](W w, L l) { return l.sizes.pp > 1 && main_branch_streams(w, l); },
     [](W, L l) {
         return fmt::format(
             "pp = {}: Megatron-LM's main has no pipeline of residual streams (--enable-mhc-connections); use pp 1, or "
             "--enable-hyper-connections of its branch dev",
             l.sizes.pp);
     }},
    // Megatron-LM transformer_config.py, __post_init__.
    {"offloaded_layers_without_pipeline", "activations on the host with a pipeline", Level::pipeline,
     [](W w, L l) { return l.sizes.pp > 1 && l.engine == Engine::megatron && w.training.megatron.offloaded_layers > 0; },
     [](W, L l) {
         return fmt::format(
             "pp = {}: activations of layers wait in the host's memory (--cpu-offloading-num-layers) without a pipeline only; use pp 1",
             l.sizes.pp);
     }},
    // Megatron-LM parallel_state.py, initialize_model_parallel: parts of weights use separate ranks of the world.
    {"weight_shards_divide_dp", "parts of weights do not divide dp", Level::pipeline,
     [](W w, L l) { return l.dp() % parts_of_weights(w, l).dense != 0; },
     [](W w, L l) {
         return fmt::format(
             "--tensor-parallel-num-weight-shards = {} divides weights over tp = {} and {} data-parallel ranks, and dp = {} is no multiple "
             "of {}; use {}, or another tp, cp or pp",
             parts_of_weights(w, l).dense * l.sizes.tp, l.sizes.tp, parts_of_weights(w, l).dense, l.dp(), parts_of_weights(w, l).dense,
             usable_shards(l.dp(), l.sizes.tp));
     }},
    {"layers_in_bf16_suit_the_stages", "layers in bf16 that Megatron-LM refuses", Level::pipeline,
     [](W w, L l) { return !layers_in_bf16_problem(w, l).empty(); }, layers_in_bf16_problem},
    // ---- expert ----
    {"expert_shards_divide_edp", "parts of experts' weights do not divide their data parallelism", Level::expert,
     [](W w, L l) { return w.model.moe && !first_grid_problem(l.sizes) && l.edp() % parts_of_weights(w, l).experts != 0; },
     [](W w, L l) {
         return fmt::format(
             "--expert-tensor-parallel-num-weight-shards = {} divides weights over etp = {} and {} data-parallel ranks of experts, and edp = {} "
             "is no multiple of {}; use {}, or another ep, etp or pp",
             parts_of_weights(w, l).experts * l.sizes.etp, l.sizes.etp, parts_of_weights(w, l).experts, l.edp(),
             parts_of_weights(w, l).experts, usable_shards(l.edp(), l.sizes.etp));
     }},
    {"fsdp2_without_expert_parallel", "PyTorch FSDP2 with expert parallelism", Level::expert,
     [](W w, L l) { return w.model.moe && l.sizes.ep > 1 && uses_fsdp2(w, l); },
     [](W, L l) {
         return fmt::format("ep = {}: PyTorch FSDP2 (--use-torch-fsdp2) has no expert parallelism; use ep 1 or --use-megatron-fsdp",
                            l.sizes.ep);
     }},
    {"ep_divides_experts", "ep does not divide the experts", Level::expert,
     [](W w, L l) { return w.model.moe && w.model.moe->experts % l.sizes.ep != 0; },
     [](W w, L l) { return does_not_divide("ep", l.sizes.ep, "experts", w.model.moe->experts, w.world); },
     true},
    {"etp_divides_expert_ffn", "etp does not divide the experts' width", Level::expert,
     [](W w, L l) { return w.model.moe && w.model.moe->expert_ffn % l.sizes.etp != 0; },
     [](W w, L l) { return does_not_divide("etp", l.sizes.etp, "experts' width", w.model.moe->expert_ffn, w.world); }},
    // Megatron-LM transformer_config.py, __post_init__.
    {"biased_experts_without_etp", "biases of experts with etp", Level::expert,
     [](W w, L l) { return w.newest_rules && w.model.moe && w.model.mlp_bias && l.sizes.etp > 1 && l.engine == Engine::megatron; },
     [](W, L l) { return fmt::format("etp = {}: Megatron-LM has biases of experts without expert tensor parallelism; use etp 1", l.sizes.etp); }},
    {"adapters_of_whole_experts", "adapters of experts with etp", Level::expert,
     [](W w, L l) { return w.model.moe && w.model.adapters && w.model.adapters->experts && l.sizes.etp > 1; },
     [](W, L l) {
         return fmt::format("etp = {}: adapters of experts (LoRA) are predicted of whole experts; use etp 1, or leave experts out of the targets",
                            l.sizes.etp);
     }},
    {"rank_grids_exist", "the expert grid does not fit the world", Level::expert,
     [](W, L l) { return first_grid_problem(l.sizes).has_value(); },
     [](W, L l) {
         const auto found = problems(l.sizes);
         return found.empty() ? std::string() : found.front();
     }},
    {"tp_inside_nvlink_domain", "tp leaves the NVLink domain", Level::expert,
     [](W w, L l) { return !tp_is_fastest(l) && l.sizes.tp > 1 && tp_leaves_domain(w, l.sizes.tp, tp_stride(l), l.sizes.world); },
     tp_domain_message},
    {"ep_inside_nvlink_domain", "ep leaves the NVLink domain", Level::expert, ep_leaves_domain, ep_domain_message},
    // ---- chunks ----
    {"vpp_needs_pipeline", "vpp without a pipeline", Level::chunks, [](W, L l) { return l.vpp > 1 && l.sizes.pp == 1; },
     [](W, L l) { return fmt::format("vpp = {} needs pp > 1; use vpp 1 or a larger pp", l.vpp); }},
    // Megatron-LM arguments.py: interleaving on two ranks needs overlapped point-to-point communication.
    {"interleaving_two_ranks_needs_p2p_overlap", "vpp on pp 2 needs overlapped p2p", Level::chunks,
     [](W w, L l) { return l.vpp > 1 && !l.schedule && l.sizes.pp == 2 && !w.training.overlap_p2p; },
     [](W, L l) { return fmt::format("vpp = {} on pp = 2 needs p2p overlap; drop --no-overlap p2p or use pp > 2", l.vpp); }},
    {"chunks_have_layers", "more model chunks than layers", Level::chunks,
     [](W, L l) { return l.split == nullptr && (l.vpp == 1 || l.sizes.pp > 1); },
     [](W w, L l) {
         return fmt::format("pp·vpp = {}·{} makes {} chunks of {} layers; use pp·vpp of at most {}", l.sizes.pp, l.vpp, stages(l),
                            w.model.layers, w.model.layers);
     }},
    // Megatron-LM's branch dev at d48bd6be, transformer_config.py: its tables need token ids, which only the first stage has.
    {"experts_by_words_on_the_first_stage", "experts that words choose behind the stage that has the words", Level::chunks,
     [](W w, L l) { return word_layers_behind_words(w, l) > 0; },
     [](W w, L l) {
         return fmt::format(
             "the first stage holds {}, behind which {} more whose experts a table of words chooses; Megatron-LM wants these with the "
             "embeddings; use a smaller pp·vpp, or a --pipeline-layout that puts them there",
             counted(l.split->chunk(0, 0).decoders, "layer"), counted(word_layers_behind_words(w, l), "layer"));
     }},
    // ---- microbatch ----
    {"batch_divides", "dp·micro-batch does not divide the global batch", Level::microbatch,
     [](W w, L l) { return w.batch.global_batch % (l.dp() * l.micro_batch) != 0; },
     [](W w, L l) { return undivided_batch(w.batch.global_batch, l.dp(), l.micro_batch).value_or(""); }},
    {"interleaved_microbatches", "microbatches do not suit the interleaved schedule", Level::microbatch,
     [](W, L l) { return l.vpp > 1 && !l.schedule && interleaved_refusal(static_cast<int>(l.sizes.pp), l.num_microbatches, l.group_size).has_value(); },
     interleaved_message},
    {"split_schedule_runs", "a schedule with divided backwards that does not run on these sizes", Level::microbatch,
     [](W w, L l) { return l.schedule && !split_schedule_messages(w, l).empty(); },
     [](W w, L l) { return fmt::format("{}", fmt::join(split_schedule_messages(w, l), "; ")); }},
    {"microbatch_is_countable", "a microbatch too large to count its bytes", Level::microbatch,
     [](W w, L l) { return most_activation_bytes(w, l) > 0x1p60; },
     [](W w, L l) {
         return fmt::format(
             "micro-batch = {} of {} tokens makes more activations than 64 bits count; use a smaller --micro-batch, --seq or --group-size",
             l.micro_batch, w.batch.sequence);
     }},
    // ---- sequence parallelism ----
    // Megatron-LM arguments.py: experts with tp > 1 need sequence parallelism.
    {"experts_need_sequence_parallel", "tp with experts needs sequence parallelism", Level::sequence_parallel,
     [](W w, L l) { return w.model.moe && l.sizes.tp > 1 && !l.sequence_parallel; },
     [](W, L l) { return fmt::format("tp = {} with experts needs sequence parallelism; turn it on or use tp 1", l.sizes.tp); }},
    {"sequence_parallel_divides_sequence", "cp·tp does not divide the sequence", Level::sequence_parallel,
     [](W w, L l) { return l.sequence_parallel && w.batch.sequence % (l.sizes.cp * l.sizes.tp) != 0; },
     [](W w, L l) {
         return fmt::format(
             "sequence parallelism splits {} tokens over cp·tp = {}·{}, which does not divide them; turn it off or use another --seq",
             w.batch.sequence, l.sizes.cp, l.sizes.tp);
     }},
    // ---- kind of context parallelism ----
    {"a2a_divides_heads", "all-to-all cp: tp·cp does not divide the heads", Level::context_kind,
     [](W w, L l) {
         return l.sizes.cp > 1 && l.cp_comm_type == CpCommType::a2a &&
                (w.model.heads % (l.sizes.tp * l.sizes.cp) != 0 || (!w.model.mla && w.model.kv_heads % (l.sizes.tp * l.sizes.cp) != 0));
     },
     [](W w, L l) {
         return fmt::format(
             "cp-comm-type a2a splits heads = {} and kv heads = {} over tp·cp = {}·{}, which does not divide both; use p2p or all_gather",
             w.model.heads, w.model.kv_heads, l.sizes.tp, l.sizes.cp);
     }},
    // Megatron-LM transformer_config.py, __post_init__.
    {"sparse_attention_gathers_context", "sparse attention that exchanges its context otherwise than by all-gathers", Level::context_kind,
     [](W w, L l) {
         return l.sizes.cp > 1 && l.engine == Engine::megatron && w.model.mla && w.model.mla->index_heads > 0 &&
                l.cp_comm_type != CpCommType::all_gather;
     },
     [](W, L l) {
         return fmt::format("cp-comm-type {}: sparse attention (DSA) exchanges its context by all-gathers alone; use all_gather",
                            to_string(l.cp_comm_type));
     }},
    // ---- recompute ----
    {"offloaded_layers_without_recompute", "recompute of layers whose activations wait on the host", Level::recompute,
     [](W w, L l) { return l.recompute != Recompute::none && l.engine == Engine::megatron && w.training.megatron.offloaded_layers > 0; },
     [](W, L l) {
         return fmt::format(
             "recompute = {}: Megatron-LM recomputes nothing where activations wait in the host's memory "
             "(--cpu-offloading-num-layers); use --recompute none",
             to_string(l.recompute));
     }},
    {"recompute_modules_exist", "recompute of modules the model has not", Level::recompute,
     [](W w, L l) {
         if (l.recompute != Recompute::selective) return false;
         const auto& modules = l.recompute_modules;
         const bool expert = modules.contains(RecomputeModule::moe) || modules.contains(RecomputeModule::moe_act) ||
                             modules.contains(RecomputeModule::shared_experts);
         const bool streams = modules.contains(RecomputeModule::mhc);
         return modules.empty() || (modules.contains(RecomputeModule::mla_up_proj) && !projects_latents(w.model)) ||
                (expert && !w.model.moe) ||
                (streams && (!w.model.hyper_connections || l.engine != Engine::megatron || modules.contains(RecomputeModule::mlp)));
     },
     [](W w, L) {
         return fmt::format(
             "recompute modules: mla_up_proj needs latent or compressed attention, moe, moe_act and shared_experts need experts, and mhc residual "
             "streams that maps mix, without mlp and for engine megatron, which {} has not; use core_attn, mlp or layernorm",
             w.model.name);
     }},
    // Megatron-LM's branch dev at d48bd6be, deepseek_v4_hybrid_attention.py: asserts that this module is not recomputed.
    {"compressed_attention_is_kept", "recompute of compressed attention's core", Level::recompute,
     [](W w, L l) {
         return l.recompute == Recompute::selective && l.recompute_modules.contains(RecomputeModule::core_attn) &&
                has_mixer_with(w.model, &MixerTraits::keeps_core);
     },
     [](W, L) {
         return std::string(
             "recompute module core_attn: compressed attention keeps its core (Megatron-LM's branch dev refuses it); use mla_up_proj, which "
             "makes queries and keys again");
     }},
    {"residual_streams_without_full_recompute", "full recompute of residual streams", Level::recompute,
     [](W w, L l) { return main_branch_streams(w, l) && l.recompute == Recompute::full; },
     [](W, L) {
         return std::string(
             "recompute = full: Megatron-LM's main refuses it beside --enable-mhc-connections (transformer_config.py); use selective with "
             "module mhc, or none");
     }},
    {"cuda_graphs_hold_the_recompute", "CUDA graphs cannot hold the recompute", Level::recompute,
     [](W w, L l) { return graph_recompute_problem(l.cuda_graphs, l.recompute, l.recompute_modules, w.model).has_value(); },
     [](W w, L l) { return graph_recompute_problem(l.cuda_graphs, l.recompute, l.recompute_modules, w.model).value_or(""); }},
});

static_assert(std::is_sorted(kRules.begin(), kRules.end(), [](const Rule& a, const Rule& b) { return a.level < b.level; }));

/// Index of each level's first rule in kRules; the last entry is the end.
constexpr auto kLevelBegins = [] {
    std::array<std::size_t, kLevels + 1> begins{};
    for (std::size_t level = 0; level <= kLevels; ++level) {
        while (begins[level] < kRules.size() && static_cast<std::size_t>(kRules[begins[level]].level) < level) ++begins[level];
    }
    return begins;
}();

std::span<const Rule> rules_of(Level level) {
    if (level == Level::switches) return rules().subspan(kRules.size());
    const auto at = static_cast<std::size_t>(level);
    return rules().subspan(kLevelBegins[at], kLevelBegins[at + 1] - kLevelBegins[at]);
}

/// The rules divide by the sizes and by their products, which must stay within 64 bits.

}  // namespace

std::span<const Rule> rules() {
    static const std::vector<Rule> all = [] {
        std::vector<Rule> joined(kRules.begin(), kRules.end());
        const std::span<const Rule> last = switch_rules();
        joined.insert(joined.end(), last.begin(), last.end());
        return joined;
    }();
    return all;
}

const Rule* first_broken(const Workload& workload, const Layout& layout, Level level) {
    for (const Rule& rule : rules_of(level)) {
        if (rule.broken(workload, layout)) return &rule;
    }
    return nullptr;
}

std::vector<std::string> broken_messages(const Workload& workload, const Layout& layout, Level level) {
    std::vector<std::string> messages;
    for (const Rule& rule : rules_of(level)) {
        if (rule.broken(workload, layout)) messages.push_back(rule.message(workload, layout));
    }
    return messages;
}

std::vector<std::string> broken_messages(const Workload& workload, const Layout& layout) {
    for (int i = 0; i < kLevels; ++i) {
        const auto level = static_cast<Level>(i);
        std::vector<std::string> messages = broken_messages(workload, layout, level);
        if (messages.empty()) continue;
        const std::vector<std::string> others = broken_alone_behind(workload, layout, level);
        messages.insert(messages.end(), others.begin(), others.end());
        return messages;
    }
    return {};
}

std::vector<std::string> broken_alone_behind(const Workload& workload, const Layout& layout, Level level) {
    std::vector<std::string> messages;
    for (const Rule& rule : rules()) {
        if (rule.alone && rule.level > level && rule.broken(workload, layout)) messages.push_back(rule.message(workload, layout));
    }
    return messages;
}

std::int64_t etp_without_experts(const ParallelSizes& sizes) {
    return sizes.order == AxisOrder{} ? sizes.tp : sizes.tp * sizes.cp;
}

}  // namespace mgplan::planner
