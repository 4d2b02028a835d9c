// Flags that say where parameters and optimizer state are, and in which precision: optimizers, FSDP, weight shards, offloading.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/megatron/read_flags.hpp"

namespace mgplan::formats::megatron_state_flags_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using tests::megatron::kSmall, tests::megatron::read, tests::megatron::refusal;

TEST(MegatronStateFlags, ReadsOptimizers) {
    const auto training = [](const std::string& more) { return *read(kSmall + more).training; };
    EXPECT_EQ(training("").megatron.optimizer, OptimizerKind::adam);
    EXPECT_EQ(training("--optimizer sgd").megatron.optimizer, OptimizerKind::sgd);
    const TrainingSpec muon = training("--optimizer dist_muon --overlap-grad-reduce --overlap-param-gather");
    EXPECT_EQ(muon.megatron.optimizer, OptimizerKind::muon);
    EXPECT_TRUE(muon.distributed_optimizer) << "the older name of Muon with the distributed optimizer";
    EXPECT_FALSE(training("--optimizer muon").distributed_optimizer);
}

TEST(MegatronStateFlags, ReadsLayoutsOfWholeMatrices) {
    const auto laid_out = [](const std::string& more) { return read(kSmall + more).training->megatron.layer_wise_layout; };
    for (const char* optimizer : {"muon", "lion"}) {
        const std::string shared = fmt::format("--optimizer {} --use-distributed-optimizer ", optimizer);
        EXPECT_TRUE(laid_out(shared));
        EXPECT_FALSE(laid_out(shared + "--no-use-layer-wise-param-layout"));
        EXPECT_FALSE(laid_out(fmt::format("--optimizer {}", optimizer)));
    }
    EXPECT_FALSE(laid_out("--use-distributed-optimizer"));
    EXPECT_FALSE(laid_out("--optimizer dist_muon")) << "a name of releases without the layout";
    EXPECT_TRUE(laid_out("--optimizer dist_muon --use-layer-wise-param-layout")) << "branch dev's switch";
}

TEST(MegatronStateFlags, ReadsFullySharded) {
    const std::string torch = kSmall + "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights ";
    const FullyShardedSpec two = read(torch + "--torch-fsdp2-no-reshard-after-forward").training->megatron.fully_sharded;
    EXPECT_EQ(two.kind, FullyShardedKind::torch_fsdp2);
    EXPECT_TRUE(two.shards_parameters());
    EXPECT_FALSE(two.reshard_after_forward);
    const TrainingSpec megatron = *read(kSmall +
                                        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --nccl-ub "
                                        "--megatron-fsdp-main-params-dtype auto --megatron-fsdp-main-grads-dtype fp32")
                                       .training;
    EXPECT_EQ(megatron.megatron.fully_sharded.strategy, ShardingStrategy::optim_grads_params);
    EXPECT_TRUE(megatron.megatron.fully_sharded.double_buffer) << "which registered buffers need";
    EXPECT_EQ(megatron.megatron.fully_sharded.main_params, std::nullopt);
    EXPECT_EQ(megatron.megatron.fully_sharded.main_grads, Dtype::fp32);
    EXPECT_TRUE(megatron.distributed_optimizer && megatron.overlap_grad_reduce && megatron.overlap_param_gather);
    EXPECT_FALSE(read(kSmall + "--data-parallel-sharding-strategy optim").training->megatron.fully_sharded.active());
}

TEST(MegatronStateFlags, RefusesFullyShardedAsMegatronDoes) {
    const std::string torch = kSmall + "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights ";
    EXPECT_THAT(refusal(torch + "--use-megatron-fsdp"), HasSubstr("exclude each other"));
    EXPECT_THAT(refusal(torch + "--use-distributed-optimizer"), HasSubstr("drop --use-distributed-optimizer"));
    EXPECT_THAT(refusal(torch + "--fp16"), HasSubstr("use --bf16"));
    EXPECT_THAT(refusal(torch + "--ckpt-format torch"), HasSubstr("torch_dist or torch_dcp, not torch"));
    EXPECT_THAT(refusal(torch + "--optimizer muon"), HasSubstr("muon cannot be sharded by PyTorch FSDP2"));
    EXPECT_THAT(refusal(kSmall + "--use-torch-fsdp2"), testing::AllOf(HasSubstr("needs --no-gradient-accumulation-fusion"),
                                                                      HasSubstr("needs --untie-embeddings-and-output-weights")));
    EXPECT_THAT(refusal(kSmall + "--use-megatron-fsdp --ckpt-format torch_dist"), HasSubstr("needs --ckpt-format fsdp_dtensor"));
    EXPECT_THAT(refusal(kSmall + "--use-megatron-fsdp --outer-dp-sharding-strategy optim --num-distributed-optimizer-instances 2"),
                HasSubstr("needs --data-parallel-sharding-strategy optim_grads_params, not no_shard"));
}

TEST(MegatronStateFlags, HoldsWeightsInParts) {
    const std::string without_batch = kSmall + "--bf16 --tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards ";
    const std::string words = kSmall + "--bf16 --global-batch-size 64 --tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards ";
    EXPECT_THAT(refusal(without_batch + "8"), HasSubstr("--tensor-parallel-num-weight-shards needs --global-batch-size"));
    EXPECT_EQ(read(without_batch + "8 --eval-global-batch-size 64").training->megatron.weight_shards.dense, 4);
    EXPECT_THAT(refusal(words + "8 --dist-ckpt-optim-fully-reshardable --distrib-optim-fully-reshardable-mem-efficient"),
                HasSubstr("does not go with --dist-ckpt-optim-fully-reshardable and --distrib-optim-fully-reshardable-mem-efficient"));
    EXPECT_THAT(refusal(words + "8 --fp8-recipe mxfp8"), HasSubstr("without --fp8-format leave that recipe out"));
    EXPECT_THAT(refusal(kSmall + "--bf16 --expert-tensor-parallel-num-weight-shards 4 --ddp-average-in-collective"),
                HasSubstr("does not go with --ddp-average-in-collective"))
        << "without experts, too";
    EXPECT_EQ(read(words + "8").training->megatron.weight_shards.dense, 4) << "with tp";
    EXPECT_THAT(read(words + "2").flags.without_effect, Contains("--tensor-parallel-num-weight-shards"));
    EXPECT_THAT(refusal(words + "5"), HasSubstr("= 5 is no multiple of --tensor-model-parallel-size = 2"));
    EXPECT_THAT(refusal(words + "1"), HasSubstr("= 1 is no multiple of"));
    EXPECT_THAT(refusal(words + "8 --ddp-average-in-collective"), HasSubstr("does not go with --ddp-average-in-collective"));
    EXPECT_THAT(refusal(words + "8 --num-distributed-optimizer-instances 2"), HasSubstr("needs --num-distributed-optimizer-instances 1"));
    EXPECT_THAT(refusal(words + "8 --ckpt-format torch_dcp"), HasSubstr("needs --ckpt-format torch or torch_dist"));
    EXPECT_THAT(refusal(words + "8 --fp4-format e2m1"), HasSubstr("needs --fp4-param-gather"));
    EXPECT_THAT(refusal(words + "8 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --use-distributed-optimizer"),
                HasSubstr("needs --fp8-param-gather and --reuse-grad-buf-for-mxfp8-param-ag"));
    EXPECT_THAT(refusal(words + "8 --gtp-remat-opt-in-modules attention"), HasSubstr("use moe_latent_proj"));
    for (const char* open : {"8 --optimizer muon", "8 --fp8-format hybrid", "8 --recompute-granularity selective --recompute-modules mlp",
                             "8 --cuda-graph-impl transformer_engine", "8 --use-transformer-engine-op-fuser"}) {
        const Job job = read(words + open);
        EXPECT_FALSE(job.training->megatron.weight_shards.active()) << open;
        EXPECT_EQ(job.flags.not_computed.size(), 1U) << open;
    }
    const std::string mixture = kSmall + "--bf16 --num-experts 8 --expert-model-parallel-size 2 --disable-bias-linear ";
    const Job experts = read(mixture + "--expert-tensor-parallel-num-weight-shards 4");
    EXPECT_EQ(experts.training->megatron.weight_shards, (WeightShards{.dense = 1, .experts = 4}));
    const Job dense = read(kSmall + "--bf16 --expert-tensor-parallel-num-weight-shards 4");
    EXPECT_FALSE(dense.training->megatron.weight_shards.active());
    EXPECT_EQ(dense.layout->idle_expert_shards, 4) << "by which Megatron-LM divides the world all the same";
    EXPECT_THAT(dense.flags.used, Contains("--expert-tensor-parallel-num-weight-shards"));
}

TEST(MegatronStateFlags, KeepsFirstAndLastLayersInBf16) {
    const std::string fp8 = kSmall + "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16 ";
    const auto layers_of = [](const Job& job) {
        return std::pair(job.training->megatron.bf16_layers_at_start, job.training->megatron.bf16_layers_at_end);
    };
    EXPECT_EQ(layers_of(read(fp8)), std::pair(std::int64_t{1}, std::int64_t{1})) << "Megatron-LM's defaults";
    EXPECT_EQ(layers_of(read(fp8 + "--num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 2")),
              std::pair(std::int64_t{0}, std::int64_t{2}));
    EXPECT_THAT(refusal(fp8 + "--num-layers-at-start-in-bf16 2 --pipeline-model-parallel-size 4"),
                HasSubstr("--num-layers-at-start-in-bf16 = 2 is more than the 1 layers of a pipeline stage"));
    EXPECT_THAT(refusal(kSmall + "--bf16 --fp8-format hybrid --first-last-layers-bf16"),
                HasSubstr("does not go with --fp8-recipe delayed"));
    const Job plain = read(kSmall + "--bf16 --first-last-layers-bf16");
    EXPECT_EQ(layers_of(plain), std::pair(std::int64_t{0}, std::int64_t{0}));
    EXPECT_THAT(plain.flags.used, Contains("--first-last-layers-bf16")) << "as all layers are";
    const Job graphs = read(fp8 + "--cuda-graph-impl transformer_engine");
    EXPECT_EQ(layers_of(graphs), std::pair(std::int64_t{1}, std::int64_t{1})) << "graphs capture each kind of layer";
    EXPECT_TRUE(graphs.flags.not_computed.empty());
}

TEST(MegatronStateFlags, LeavesTheOptimizerOnTheHost) {
    const std::string aware = kSmall + "--bf16 --use-distributed-optimizer --use-precision-aware-optimizer ";
    const TrainingSpec all = *read(aware + "--optimizer-cpu-offload").training;
    EXPECT_EQ(all.offload.optimizer, 1);  // Megatron-LM's own default
    EXPECT_FALSE(all.megatron.overlap_host_update);
    const TrainingSpec half =
        *read(aware + "--optimizer-cpu-offload --optimizer-offload-fraction 0.5 --overlap-cpu-optimizer-d2h-h2d").training;
    EXPECT_EQ(half.offload.optimizer, 0.5);
    EXPECT_TRUE(half.megatron.overlap_host_update);
    EXPECT_THAT(read(aware + "--optimizer-offload-fraction 0.5").flags.without_effect, Contains("--optimizer-offload-fraction"));

    EXPECT_THAT(refusal(kSmall + "--optimizer-cpu-offload"), HasSubstr("needs --use-precision-aware-optimizer"));
    EXPECT_THAT(refusal(aware + "--optimizer-cpu-offload --optimizer-offload-fraction 2"), HasSubstr("is no number from 0 to 1"));
    EXPECT_THAT(refusal(aware + "--optimizer-cpu-offload --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather"),
                HasSubstr("under delayed scaling alone"));
    const Job fsdp = read(aware + "--optimizer-cpu-offload --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads");
    EXPECT_EQ(fsdp.training->offload.optimizer, 0);
    ASSERT_EQ(fsdp.flags.not_computed.size(), 1U);
    EXPECT_EQ(fsdp.flags.not_computed[0].flag, "--optimizer-cpu-offload");
}

// Rules of branch dev of Megatron-LM at d48bd6be: core/optimizer/optimizer_config.py, __post_init__; training/arguments.py, validate_args.
TEST(MegatronStateFlags, LeavesOptimizerStateOnTheHostBetweenUpdates) {
    const std::string sharded = kSmall + "--bf16 --use-distributed-optimizer ", chunked = sharded + "--chunked-optimizer-state-offload ",
                      aware = chunked + "--use-precision-aware-optimizer ", muon = chunked + "--optimizer muon ";
    for (const std::string& whole : {chunked, sharded + "--offload-optimizer-states"}) {
        const TrainingSpec training = *read(whole).training;
        EXPECT_EQ(training.offload, OffloadSpec{.states = 1});
        EXPECT_EQ(training.megatron.offload_chunk_mib, 0);
    }
    const TrainingSpec part = *read(chunked + "--optimizer-state-offload-fraction 0.5 --optimizer-state-offload-chunk-size-mb 64").training;
    EXPECT_EQ(part.offload, OffloadSpec{.states = 0.5});
    EXPECT_EQ(part.megatron.offload_chunk_mib, 64);
    EXPECT_EQ(read(muon).training->offload, OffloadSpec{.states = 1});
    EXPECT_EQ(read(aware + "--exp-avg-dtype bf16").training->offload, OffloadSpec{.states = 1});
    // Without a share it asks for nothing, and its rules do not hold.
    EXPECT_EQ(read(kSmall + "--chunked-optimizer-state-offload --optimizer-state-offload-fraction 0 --async-save").training->offload,
              OffloadSpec{});
    EXPECT_THAT(read(sharded + "--optimizer-state-offload-fraction 0.5 --async-save --no-load-optim").flags.without_effect,
                testing::IsSupersetOf({"--optimizer-state-offload-fraction", "--async-save", "--no-load-optim"}));

    EXPECT_THAT(refusal(kSmall + "--bf16 --offload-optimizer-states"), HasSubstr("add --use-distributed-optimizer"));
    EXPECT_THAT(refusal(sharded + "--offload-optimizer-states --optimizer muon"), HasSubstr("use --chunked-optimizer-state-offload"));
    EXPECT_THAT(refusal(chunked + "--optimizer sgd"), HasSubstr("Adam's or Muon's, and here it is sgd; use --optimizer adam or muon"));
    EXPECT_THAT(refusal(kSmall + "--use-distributed-optimizer --chunked-optimizer-state-offload --optimizer muon"),
                HasSubstr("needs bf16 with Muon, not fp32"));
    EXPECT_THAT(refusal(aware + "--optimizer-cpu-offload"), HasSubstr("excludes the optimizer on the host"));
    EXPECT_THAT(refusal(aware + "--exp-avg-sq-dtype fp8"), HasSubstr("takes moments in fp32 and bf16"));
    EXPECT_THAT(refusal(aware + "--main-params-dtype fp16"), HasSubstr("needs main parameters in fp32"));
    EXPECT_THAT(refusal(chunked + "--ckpt-format torch --no-load-optim"), HasSubstr("needs --ckpt-format torch_dist"));
    EXPECT_EQ(read(chunked + "--ckpt-format torch --no-load-optim --no-save-optim").training->offload, OffloadSpec{.states = 1});
    EXPECT_THAT(refusal(chunked + "--async-save"), HasSubstr("does not go with --async-save; leave one out, or add --no-save-optim"));
    EXPECT_THAT(refusal(chunked + "--optimizer-state-offload-fraction 1.5"), HasSubstr("is no number from 0 to 1"));
    EXPECT_THAT(refusal(chunked + "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --no-save-optim --no-load-optim"),
                HasSubstr("does not go with FSDP"));
}

// core/optimizer/optimizer_config.py, __post_init__, and arguments.py, at d98e8a64.
TEST(MegatronStateFlags, HasNarrowOptimizerStateWithThePrecisionAwareOptimizerAlone) {
    const std::string bf16 = kSmall + "--bf16 --use-distributed-optimizer ", aware = bf16 + "--use-precision-aware-optimizer ";
    const TrainingSpec training = *read(aware + "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp16 --main-params-dtype fp16").training;
    EXPECT_EQ(training.exp_avg_dtype, Dtype::fp8);
    EXPECT_EQ(training.exp_avg_sq_dtype, Dtype::fp16);
    EXPECT_EQ(training.main_param_dtype, Dtype::fp16);
    for (const std::string narrow :
         {"--exp-avg-dtype fp8", "--exp-avg-sq-dtype bf16", "--main-params-dtype fp16", "--main-grads-dtype bf16"})
        EXPECT_THAT(refusal(bf16 + narrow), HasSubstr(narrow + " needs --use-precision-aware-optimizer; add it"));
    EXPECT_THAT(refusal(aware + "--main-params-dtype bf16"), HasSubstr("--main-params-dtype"));
    EXPECT_THAT(refusal(aware + "--main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32"), HasSubstr("leave one of them out"));
    EXPECT_THAT(refusal(aware + "--optimizer muon"), HasSubstr("is Adam's, and here it is muon"));
}

TEST(MegatronStateFlags, LeavesInputsOfModulesOnTheHost) {
    const std::string fine = kSmall + "--bf16 --fine-grained-activation-offloading ";
    const TrainingSpec training = *read(fine + "--offload-modules core_attn attn_proj --min-offloaded-tensor-size 4096").training;
    EXPECT_EQ(training.offload.modules, (EnumSet<OffloadModule>{OffloadModule::core_attn, OffloadModule::attn_proj}));
    EXPECT_EQ(training.megatron.least_offloaded, 4096);
    EXPECT_TRUE(read(kSmall + "--offload-modules core_attn").training->offload.modules.empty());  // nothing asks for it

    EXPECT_THAT(refusal(fine), HasSubstr("needs --offload-modules"));
    EXPECT_THAT(refusal(fine + "--offload-modules mlp"),
                HasSubstr("--offload-modules = 'mlp' is no module that is offloaded; use attn_norm"));
    EXPECT_THAT(refusal(fine + "--offload-modules attn_proj"), HasSubstr("add core_attn"));
    EXPECT_THAT(refusal(fine + "--offload-modules core_attn --cpu-offloading-num-layers 2"), HasSubstr("exclude each other"));
    EXPECT_THAT(refusal(fine + "--offload-modules core_attn --transformer-impl local"), HasSubstr("need Transformer Engine"));
    const Job recomputed = read(fine +
                                "--offload-modules core_attn --recompute-granularity full --recompute-method uniform "
                                "--recompute-num-layers 1");
    EXPECT_TRUE(recomputed.training->offload.modules.empty());
    EXPECT_EQ(recomputed.flags.not_computed.size(), 1U);
}

TEST(MegatronStateFlags, OffloadsFewerLayersThanThereAre) {
    EXPECT_EQ(read(kSmall + "--cpu-offloading-num-layers 2").training->megatron.offloaded_layers, 2);
    EXPECT_THAT(refusal(kSmall + "--cpu-offloading-num-layers 4"), HasSubstr("at most 3 of the 4 layers"));
    EXPECT_THAT(refusal(kSmall + "--cpu-offloading-num-layers 2 --recompute-granularity full --recompute-method uniform "
                                 "--recompute-num-layers 1"),
                HasSubstr("exclude each other"));
}

}  // namespace
}  // namespace mgplan::formats::megatron_state_flags_test
