#include "rule_cases.hpp"

#include "dispatcher_cases.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/training/data_sharding.hpp"

namespace mgplan::planner::testing {
namespace {

/// The mixer of the first kind of layer.
Mamba2& mamba2_of(Workload& work) {
    return std::get<Mamba2>(*work.model.kinds.front().layer.mixer);
}

}  // namespace

std::vector<Case> rule_cases() {
    LayoutRequest plain, tp2, pp2, cp2, pp2_vpp2, tp2_sp, ep8;
    ep8.ep = 8;
    ep8.etp = 1;
    tp2.tp = 2;
    pp2.pp = 2;
    cp2.cp = 2;
    pp2_vpp2.pp = 2;
    pp2_vpp2.vpp = 2;
    tp2_sp.tp = 2;
    tp2_sp.sequence_parallel = true;
    LayoutRequest experts = plain;
    experts.etp = 1;
    return {
        {"tp_divides_world",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             work.model.heads = work.model.kv_heads = 24;
             work.model.ffn = 12288;
             layout.sizes.tp = 3;
             work.confine_tp = false;
         },
         {"tp = 3", "world = 8", "use 1, 2, 4 or 8"}},
        {"tp_divides_heads",
         "qwen2.5-0.5b",
         8,
         plain,
         [](Workload&, Layout& layout) { layout.sizes.tp = 4; },
         {"tp = 4", "attention heads = 14", "use 1 or 2"}},
        {"tp_divides_kv_heads",
         "llama3-8b",
         12,
         plain,
         [](Workload& work, Layout& layout) {
             work.model.heads = 24;
             work.model.ffn = 12288;
             work.cluster.gpus_per_node = work.cluster.nvlink_domain = 12;
             layout.sizes.tp = 3;
         },
         {"tp = 3", "kv heads = 8", "use 1, 2 or 4"}},
        {"tp_divides_parts_of_layers",
         "nemotron-h-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             mamba2_of(work).groups = 2;
             layout.sizes.tp = 4;
         },
         {"tp = 4 over 2 groups of Mamba-2", "use a tp that divides them"}},
        {"cp_divides_parts_of_layers",
         "nemotron-h-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             mamba2_of(work).groups = 2;
             mamba2_of(work).heads = 4;
             layout.sizes.cp = 8;
         },
         {"cp = 8 over 4 heads of Mamba-2", "use cp 4"}},
        {"adapters_suit_the_job",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout&) {
             work.model.adapters = Adapters{.experts = false};
             work.training.megatron.optimizer = OptimizerKind::sgd;
         },
         {"adapters (LoRA) are not predicted with another optimizer than Adam"}},
        {"tp_divides_rank_of_adapters",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             work.model.adapters = Adapters{.rank = 6, .experts = false};
             layout.sizes.tp = 4;
         },
         {"tp = 4", "rank of adapters (LoRA) = 6", "use 1 or 2"}},
        {"adapters_of_whole_experts",
         "mixtral-8x7b",
         8,
         experts,
         [](Workload& work, Layout& layout) {
             work.model.adapters = Adapters{};
             layout.engine = Engine::megatron;
             layout.sizes.etp = 2;
         },
         {"etp = 2", "use etp 1"}},
        {"tp_divides_ffn",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             work.model.ffn = 14338;
             layout.sizes.tp = 4;
         },
         {"tp = 4", "ffn width = 14338", "use 1 or 2"}},
        {"tp_divides_padded_vocabulary",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             work.model.padded_rows = 128258;
             layout.sizes.tp = 4;
         },
         {"tp = 4", "padded vocabulary (--padded-vocab-size) = 128258", "use 1 or 2"}},
        {"tp_divides_shared_ffn",
         "qwen2-57b-a14b",
         8,
         experts,
         [](Workload& work, Layout& layout) {
             work.model.moe->shared_ffn = 20482;
             layout.sizes.tp = 4;
             layout.sequence_parallel = true;
         },
         {"tp = 4", "shared experts' width = 20482", "use 1 or 2"}},
        {"tp_inside_nvlink_domain",
         "llama3-8b",
         16,
         plain,
         [](Workload&, Layout& layout) { layout.sizes.tp = 16; },
         {"tp = 16", "NVLink domain of 8 GPUs of dgx-h100", "use 1, 2, 4 or 8", "--tp"}},
        {"ep_inside_nvlink_domain",
         "qwen3-235b-a22b",
         256,
         experts,
         [](Workload& work, Layout& layout) {
             work.cluster = load_cluster("gb200-nvl72");
             work.confine_ep = true;
             layout.sizes.ep = 128;
         },
         {"ep = 128 leaves the NVLink domain", "of whose 72 GPUs a job on 256 takes 64", "use 1, 2, 4, 8, 16, 32 or 64", "--ep"}},
        {"tp_cp_divide_world",
         "llama3-8b",
         8,
         tp2,
         [](Workload& work, Layout& layout) {
             layout.sizes.cp = 8;
             work.batch.sequence = 4096;
         },
         {"tp·cp = 2·8", "world = 8", "use a cp of 1, 2 or 4"}},
        {"cp_divides_sequence",
         "llama3-8b",
         8,
         cp2,
         [](Workload& work, Layout&) { work.batch.sequence = 4098; },
         {"cp = 2", "4098 tokens", "use a cp of 1 or another --seq"}},
        {"cp_needs_flash_attention",
         "llama3-8b",
         8,
         cp2,
         [](Workload& work, Layout&) { work.training.attention = AttentionBackend::unfused; },
         {"cp = 2", "unfused", "--attention flash"}},
        {"tp_cp_pp_divide_world",
         "llama3-8b",
         8,
         tp2,
         [](Workload&, Layout& layout) { layout.sizes.pp = 8; },
         {"tp·cp·pp = 2·1·8", "world = 8", "use a pp of 1, 2 or 4"}},
        {"stages_have_layers",
         "tiny-llama",
         8,
         plain,
         [](Workload&, Layout& layout) { layout.sizes.pp = 8; },
         {"pp = 8", "4 layers", "at most 4"}},
        {"ep_divides_experts",
         "tiny-moe",
         12,
         experts,
         [](Workload&, Layout& layout) { layout.sizes.ep = 3; },
         {"ep = 3", "experts = 8", "use 1, 2 or 4"}},
        {"etp_divides_expert_ffn",
         "tiny-moe",
         12,
         experts,
         [](Workload&, Layout& layout) { layout.sizes.etp = 3; },
         {"etp = 3", "experts' width = 256", "use 1, 2 or 4"}},
        {"biased_experts_without_etp",
         "gpt-oss-20b",
         8,
         experts,
         [](Workload&, Layout& layout) {
             layout.engine = Engine::megatron;
             layout.sizes.etp = 2;
         },
         {"etp = 2", "biases of experts", "use etp 1"}},
        {"rank_grids_exist",
         "tiny-moe",
         4,
         experts,
         [](Workload&, Layout& layout) { layout.sizes.ep = 8; },
         {"etp·ep·pp = 1·8·1 = 8", "world = 4", "use smaller sizes"}},
        {"vpp_needs_pipeline",
         "llama3-8b",
         8,
         pp2_vpp2,
         [](Workload&, Layout& layout) { layout.sizes.pp = 1; },
         {"vpp = 2", "pp > 1", "use vpp 1"}},
        {"interleaving_two_ranks_needs_p2p_overlap",
         "llama3-8b",
         8,
         pp2_vpp2,
         [](Workload& work, Layout&) { work.training.overlap_p2p = false; },
         {"vpp = 2", "pp = 2", "p2p overlap", "drop --no-overlap p2p"}},
        {"chunks_have_layers",
         "llama3-8b",
         8,
         pp2,
         [](Workload&, Layout& layout) {
             layout.vpp = 20;
             layout.split = nullptr;
         },
         {"pp·vpp = 2·20", "40 chunks of 32 layers", "at most 32"}},
        {"batch_divides",
         "llama3-8b",
         8,
         plain,
         [](Workload&, Layout& layout) { layout.micro_batch = 16; },
         {"global batch = 64", "dp·micro-batch = 8·16", "use a micro-batch of 1, 2, 4 or 8"}},
        {"interleaved_microbatches",
         "llama3-8b",
         8,
         pp2_vpp2,
         [](Workload&, Layout& layout) { layout.group_size = layout.num_microbatches + 1; },
         {"vpp = 2", "group size = 17", "there are 16", "use vpp 1"}},
        {"split_schedule_runs",
         "llama3-8b",
         8,
         pp2_vpp2,
         [](Workload&, Layout& layout) { layout.schedule = SplitSchedule::zb_h2; },
         {"schedule zb-h2 has one model chunk a rank", "vpp = 2", "use vpp = 1"}},
        {"microbatch_is_countable",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             work.batch = {std::int64_t{1} << 30, std::int64_t{1} << 27};
             layout.micro_batch = 65536;
         },
         {"micro-batch = 65536", "134217728 tokens", "64 bits", "smaller --micro-batch"}},
        {"experts_need_sequence_parallel",
         "tiny-moe",
         4,
         tp2_sp,
         [](Workload&, Layout& layout) { layout.sequence_parallel = false; },
         {"tp = 2", "experts", "use tp 1"}},
        {"sequence_parallel_divides_sequence",
         "llama3-8b",
         8,
         tp2_sp,
         [](Workload& work, Layout&) { work.batch.sequence = 4097; },
         {"4097 tokens", "cp·tp = 1·2", "turn it off or use another --seq"}},
        {"a2a_divides_heads",
         "qwen2.5-0.5b",
         8,
         cp2,
         [](Workload&, Layout& layout) {
             layout.sizes.cp = 4;
             layout.cp_comm_type = CpCommType::a2a;
         },
         {"heads = 14", "kv heads = 2", "tp·cp = 1·4", "use p2p or all_gather"}},
        {"sparse_attention_gathers_context",
         "deepseek-v3.2",
         8,
         cp2,
         [](Workload&, Layout& layout) { layout.engine = Engine::megatron; },
         {"cp-comm-type p2p", "sparse attention", "use all_gather"}},
        {"recompute_modules_exist",
         "llama3-8b",
         8,
         plain,
         [](Workload&, Layout& layout) {
             layout.recompute = Recompute::selective;
             layout.recompute_modules = {RecomputeModule::moe_act};
         },
         {"moe_act", "needs latent or compressed attention", "use core_attn, mlp or layernorm"}},
        {"fsdp2_without_pipeline",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.pp = 2;
             layout = make_layout(request, work);
             layout.engine = Engine::megatron;
             work.training.megatron.fully_sharded.kind = FullyShardedKind::torch_fsdp2;
         },
         {"pp = 2", "FSDP2", "use pp 1"}},
        {"weight_shards_divide_dp",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.tp = 2;
             layout = make_layout(request, work);
             layout.engine = Engine::megatron;
             work.training.megatron.weight_shards.dense = 8;
         },
         {"--tensor-parallel-num-weight-shards = 16", "over tp = 2 and 8 data-parallel ranks", "dp = 4", "use 2, 4 or 8,"}},
        {"layers_in_bf16_suit_the_stages",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.pp = 2;
             layout = make_layout(request, work);
             layout.engine = Engine::megatron;
             work.training.precision = Precision::fp8;
             work.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
             work.training.megatron.bf16_layers_at_start = 17;
         },
         {"pp = 2", "17 layers in bf16", "--num-layers-at-start-in-bf16", "the 16 of a pipeline stage", "use a pp of at most 1"}},
        {"expert_shards_divide_edp",
         "mixtral-8x7b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.ep = 4;
             layout = make_layout(request, work);
             layout.engine = Engine::megatron;
             work.training.megatron.weight_shards.experts = 4;
         },
         {"--expert-tensor-parallel-num-weight-shards = 4", "over etp = 1 and 4", "edp = 2", "use 1 or 2,"}},
        {"fsdp2_without_expert_parallel",
         "mixtral-8x7b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.ep = 4;
             layout = make_layout(request, work);
             layout.engine = Engine::megatron;
             work.training.megatron.fully_sharded.kind = FullyShardedKind::torch_fsdp2;
         },
         {"ep = 4", "FSDP2", "use ep 1"}},
        {"shared_weights_on_one_stage",
         "nemotron-h-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.pp = 2;
             layout = make_layout(request, work);
             Layer reader = work.model.kinds.front().layer;
             reader.mixer =
                 SharedBlockMamba2{.block = {.query_heads = 32, .kv_heads = 32, .head_dim = 256, .ffn = 16384}, .mamba2 = mamba2_of(work)};
             work.model.kinds.push_back({"reader", reader});
         },
         {"pp = 2", "weights, keys or inputs that layers share", "use pp 1"}},
        {"offloaded_layers_without_pipeline",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.pp = 2;
             layout = make_layout(request, work);
             layout.engine = Engine::megatron;
             work.training.megatron.offloaded_layers = 4;
         },
         {"pp = 2", "--cpu-offloading-num-layers", "use pp 1"}},
        {"offloaded_layers_without_recompute",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::megatron;
             layout.recompute = Recompute::full;
             layout.recompute_method = RecomputeMethod::uniform;
             layout.recompute_num_layers = 1;
             work.training.megatron.offloaded_layers = 4;
         },
         {"recompute = full", "--cpu-offloading-num-layers", "use --recompute none"}},
        {"cuda_graphs_suit_the_model",
         "llama3-8b",
         8,
         plain,
         [](Workload&, Layout& layout) { layout.cuda_graphs = {CudaGraphScope::moe_router}; },
         {"moe_router needs experts", "llama3-8b", "use attn, mlp or layer"}},
        {"cuda_graphs_hold_the_recompute",
         "llama3-8b",
         8,
         plain,
         [](Workload&, Layout& layout) {
             layout.recompute = Recompute::full;
             layout.recompute_method = RecomputeMethod::uniform;
             layout.recompute_num_layers = 1;
             layout.cuda_graphs = {CudaGraphScope::layer};
         },
         {"full recompute", "use --recompute none or selective"}},
        {"switches_need_engine_megatron",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload&, Layout& layout) { switch_on(layout, {.dispatcher = TokenDispatcher::hybrid_ep}, Engine::mgplan); },
         {"hybridep", "not of engine mgplan", "use --engine megatron"}},
        {"tp_overlap_needs_sequence_parallel",
         "llama3-8b",
         8,
         tp2,
         [](Workload&, Layout& layout) { switch_on(layout, {.overlap_tp = true}); },
         {"tp > 1 (here 2)", "sequence parallelism", "turn these on or drop it"}},
        {"tp_overlap_needs_sequence_parallel",
         "llama3-8b",
         8,
         tp2,
         [](Workload& work, Layout& layout) {
             work.training.overlap_tp = true;
             layout.engine = Engine::megatron;
         },
         {"tp > 1 (here 2)", "sequence parallelism", "turn these on or drop it"}},
        {"moe_overlap_suits_the_layout",
         "mixtral-8x7b",
         8,
         plain,
         [](Workload&, Layout& layout) { switch_on(layout, {.overlap_moe = true}); },
         {"overlap moe", "ep > 1", "use a larger ep"}},
        {"moe_overlap_suits_the_layout",
         "mixtral-8x7b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             work.training.overlap_moe = true;  // the command's own
             layout.engine = Engine::megatron;
         },
         {"overlap moe", "ep > 1", "use a larger ep"}},
        {"moe_overlap_suits_the_layout",
         "nemotron-3-nano-30b-a3b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.training.overlap_moe = true;
             work.model.moe->dispatcher = TokenDispatcher::all_to_all;
             layout.engine = Engine::megatron;
         },
         {"overlap moe", "is not built for hybrids", "drop it"}},
        {"bf16_moments_need_sharded_adam",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             work.training.distributed_optimizer = false;
             switch_on(layout, {.bf16_moments = true});
         },
         {"bf16 moments", "distributed optimizer", "keep fp32 moments"}},
        {"own_engine_shards_what_it_trains",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::mgplan;
             set_data_sharding({DataSharding::full}, work.training);
             work.training.megatron.fully_sharded.double_buffer = true;
         },
         {"engine mgplan does not train", "--fsdp-double-buffer", "--engine megatron"}},
        {"own_engine_has_the_optimizer",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::mgplan;
             work.training.megatron.optimizer = OptimizerKind::ademamix;
         },
         {"engine mgplan does not train", "AdEMAMix", "use adam, sgd, lion or muon", "--engine megatron"}},
        {"own_engine_offloads_what_it_trains",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::mgplan;
             layout.recompute = Recompute::full;
             layout.recompute_method = RecomputeMethod::uniform;
             layout.recompute_num_layers = 1;
             work.training.offload.modules = {OffloadModule::core_attn};
         },
         {"engine mgplan does not train --offload core_attn with full recompute", "use --recompute none or selective"}},
        {"own_engine_holds_whole_weights",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::mgplan;
             work.training.megatron.weight_shards.dense = 2;
         },
         {"engine mgplan holds no weights in parts", "--tensor-parallel-num-weight-shards", "--engine megatron"}},
        {"packed_lengths_need_fused_attention",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::megatron;
             work.batch.lengths = {{128}, {1}};
             work.training.attention = AttentionBackend::unfused;
         },
         {"--lengths packs documents", "attention unfused", "use --attention flash"}},
        {"megatron_offloads_what_it_can",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::megatron;
             work.training.offload.optimizer = 0.5;
             work.training.megatron.optimizer = OptimizerKind::lion;
         },
         {"the optimizer on the host (--optimizer-cpu-offload) is Adam", "here it is lion", "use --optimizer adam"}},
        {"megatron_offload_is_predicted",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::megatron;
             layout.recompute = Recompute::full;
             layout.recompute_method = RecomputeMethod::uniform;
             layout.recompute_num_layers = 1;
             work.training.offload.modules = {OffloadModule::core_attn};
         },
         {"not predicted are inputs of modules on the host", "under full recompute", "use --recompute none or selective"}},
        {"weight_shards_are_predicted",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::megatron;
             layout.recompute = Recompute::selective;
             layout.recompute_modules = {RecomputeModule::mlp};
             work.training.megatron.weight_shards.dense = 2;
         },
         {"not predicted are weight shards (GTP) of recomputed modules", "leave that out", "--tensor-parallel-num-weight-shards"}},
    };
}

}  // namespace mgplan::planner::testing
