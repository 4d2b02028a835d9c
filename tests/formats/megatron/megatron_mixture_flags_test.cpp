// Flags of mixtures: recompute, exchanges, experts' buffers; and of residual streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/megatron/read_flags.hpp"

namespace mgplan::formats::megatron_mixture_flags_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::megatron::kSmall, tests::megatron::read, tests::megatron::refusal;

TEST(MegatronMixtureFlags, ReadsHowFastTheExpertBiasMoves) {
    const std::string moe = kSmall + "--num-experts 8 --moe-router-score-function sigmoid --moe-router-enable-expert-bias ";
    EXPECT_EQ(read(moe).model.moe->expert_bias_update_rate, 1e-3);
    EXPECT_EQ(read(moe + "--moe-router-bias-update-rate 0.02").model.moe->expert_bias_update_rate, 0.02);
    EXPECT_THAT(refusal(moe + "--moe-router-bias-update-rate fast"), HasSubstr("--moe-router-bias-update-rate = 'fast'"));
}

TEST(MegatronMixtureFlags, RecomputesWholeMixturesByTheOldName) {
    const auto layout = [](const std::string& more) { return *read(kSmall + "--num-experts 8 " + more).layout; };
    EXPECT_EQ(layout("--moe-layer-recompute").recompute, Recompute::selective);
    EXPECT_EQ(layout("--moe-layer-recompute").recompute_modules, (EnumSet{RecomputeModule::core_attn, RecomputeModule::moe}));
    EXPECT_EQ(layout("--moe-layer-recompute --recompute-granularity selective --recompute-modules layernorm").recompute_modules,
              (EnumSet{RecomputeModule::layernorm, RecomputeModule::moe}));
    EXPECT_THAT(refusal(kSmall + "--num-experts 8 --moe-layer-recompute --recompute-granularity full --recompute-method uniform "
                                 "--recompute-num-layers 1"),
                HasSubstr("--moe-layer-recompute with --recompute-granularity full"));
}

// transformer_config.py:2014: the module moe is added to those that are recomputed anyway, and no layer has it.
TEST(MegatronMixtureFlags, RecomputesWhatElseThereIsByTheOldNameWithoutExperts) {
    const LayoutRequest layout = *read(kSmall + "--moe-layer-recompute").layout;
    EXPECT_EQ(layout.recompute, Recompute::selective);
    EXPECT_EQ(layout.recompute_modules, EnumSet{RecomputeModule::core_attn});
    const std::string selective = kSmall + "--recompute-granularity selective --recompute-modules ";
    EXPECT_EQ(read(selective + "shared_experts mlp").layout->recompute_modules, EnumSet{RecomputeModule::mlp});
    EXPECT_EQ(read(selective + "moe").layout->recompute, Recompute::none);
}

// transformer/enums.py, CudaGraphModule: captures layers that this model does not have.
TEST(MegatronMixtureFlags, CapturesNothingOfMambaWhereThereIsNone) {
    const std::string graphs = kSmall + "--cuda-graph-impl transformer_engine --cuda-graph-modules ";
    EXPECT_EQ(read(graphs + "attn mamba").layout->cuda_graphs, EnumSet{CudaGraphScope::attn});
    EXPECT_TRUE(read(graphs + "mamba").layout->cuda_graphs.empty());
}

// transformer_config.py:2671: groups count under --moe-router-group-topk alone.
TEST(MegatronMixtureFlags, LimitsRoutingToGroupsOnlyWhereATokensGroupsAreGiven) {
    const Job unlimited = read(kSmall + "--num-experts 8 --moe-router-num-groups 3");
    EXPECT_EQ(unlimited.model.moe->groups, 0);
    EXPECT_THAT(unlimited.flags.without_effect, Contains("--moe-router-num-groups"));
    EXPECT_EQ(read(kSmall + "--num-experts 8 --moe-router-num-groups 4 --moe-router-group-topk 2").model.moe->group_top_k, 2);
}

// transformer_config.py:1828: a coefficient for each kind.
TEST(MegatronMixtureFlags, ReadsTwoKindsOfBalancing) {
    const MoeSpec moe =
        *read(kSmall + "--num-experts 8 --moe-router-load-balancing-type seq_aux_loss aux_loss --moe-aux-loss-coeff 0.1 0.2").model.moe;
    EXPECT_EQ(moe.sequence_auxiliary_loss, 0.1);
    EXPECT_EQ(moe.auxiliary_loss, 0.2);
}

// transformer_config.py:3104: as many kinds as layers.
TEST(MegatronMixtureFlags, LeavesAKindOfExchangeForEachLayerOpen) {
    const std::string cp = kSmall + "--context-parallel-size 2 --cp-comm-type ";
    const Job job = read(cp + "a2a a2a p2p p2p");
    ASSERT_EQ(job.flags.not_computed.size(), 1U);
    EXPECT_EQ(job.flags.not_computed[0].decides, Decides::fit);
    EXPECT_EQ(job.layout->cp_comm_type, CpCommType::a2a);
    EXPECT_THAT(refusal(cp + "a2a p2p"), HasSubstr("names 2 kinds for 4 layers"));
    EXPECT_EQ(refusal(kSmall + "--cp-comm-type a2a p2p"), "accepted") << "without context parallelism nobody asks";
}

TEST(MegatronMixtureFlags, ReadsResidualStreamsAsMainAndAsDevHaveThem) {
    const Job main = read(kSmall +
                          "--enable-mhc-connections --mhc-num-residual-streams 2 --mhc-sinkhorn-iterations 5 "
                          "--recompute-granularity selective --recompute-modules mhc --mhc-recompute-layer-num 3");
    EXPECT_EQ(main.model.hyper_connections, (HyperConnections{.streams = 2, .sinkhorn_iterations = 5}));
    EXPECT_EQ(main.layout->mhc_recompute_layers, 3);
    EXPECT_TRUE(main.layout->recompute_modules.contains(RecomputeModule::mhc));
    EXPECT_THAT(main.assumptions, Contains(HasSubstr("HyperConnectionTransformerLayer"))) << "no model of main builds such layers";
    const Job dev = read(kSmall + "--enable-hyper-connections --use-fused-mhc --num-experts 8 --pipeline-model-parallel-size 2");
    EXPECT_EQ(dev.model.hyper_connections, (HyperConnections{.learned_head = true})) << "defaults of four streams and 20 rounds";
    EXPECT_TRUE(dev.training->megatron.fused_streams);
    EXPECT_FALSE(read(kSmall + "--mhc-num-residual-streams 2").model.hyper_connections) << "not without the switch";
}

TEST(MegatronMixtureFlags, RefusesWhatMegatronRefusesBesideResidualStreams) {
    const auto main = [](const std::string& more) { return refusal(kSmall + "--enable-mhc-connections " + more); };
    EXPECT_THAT(main("--pipeline-model-parallel-size 2"), HasSubstr("does not go with --pipeline-model-parallel-size = 2"));
    EXPECT_THAT(main("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
                HasSubstr("does not go with --recompute-granularity full"));
    EXPECT_THAT(main("--mtp-num-layers 1"), HasSubstr("does not go with --mtp-num-layers = 1"));
    EXPECT_THAT(main("--num-experts 8"), HasSubstr("does not go with --num-experts"));
    EXPECT_THAT(main("--fp32-residual-connection"), HasSubstr("does not go with --fp32-residual-connection"));
    EXPECT_THAT(main("--mhc-sinkhorn-iterations 0"), HasSubstr("--mhc-sinkhorn-iterations = 0"));
    EXPECT_THAT(main("--mhc-init-gating-factor -1"), HasSubstr("--mhc-init-gating-factor"));
    EXPECT_THAT(main("--recompute-granularity selective --recompute-modules mhc mlp"), HasSubstr("mhc and mlp, which exclude each other"));
    EXPECT_THAT(main("--use-fused-mhc"), HasSubstr("--use-fused-mhc is of branch dev"));
    EXPECT_THAT(main("--enable-hyper-connections"), HasSubstr("keep one"));
    EXPECT_THAT(refusal(kSmall + "--recompute-granularity selective --recompute-modules mhc"),
                HasSubstr("--recompute-modules mhc needs --enable-mhc-connections"));
}

TEST(MegatronMixtureFlags, LeavesOpenWhatIsNotPredictedBesideResidualStreams) {
    const Job graphs = read(kSmall +
                            "--enable-hyper-connections --recompute-granularity selective --recompute-modules mhc "
                            "--cuda-graph-impl transformer_engine --cuda-graph-modules attn");
    ASSERT_EQ(graphs.flags.not_computed.size(), 1U);
    EXPECT_EQ(
        graphs.flags.not_computed[0],
        (FlagNotComputed{"--enable-hyper-connections", "residual streams (mHC) under CUDA graphs of layers", Decides::fit_and_legal}));
    EXPECT_FALSE(graphs.model.hyper_connections);
    EXPECT_EQ(graphs.layout->recompute, Recompute::none);
    EXPECT_EQ(read(kSmall + "--enable-hyper-connections --mtp-num-layers 1 --position-embedding-type rope").flags.not_computed.size(), 1U);
}

TEST(MegatronMixtureFlags, PutsOffWeightGradientsBesideHiddenExchangesAlone) {
    const std::string late = kSmall + "--num-experts 8 --expert-model-parallel-size 2 --delay-wgrad-compute ";
    EXPECT_TRUE(read(late + "--overlap-moe-expert-parallel-comm").training->megatron.delay_wgrad);
    EXPECT_THAT(refusal(late), HasSubstr("--delay-wgrad-compute needs --overlap-moe-expert-parallel-comm"));
    const std::string overlapped = late + "--overlap-moe-expert-parallel-comm ";
    EXPECT_THAT(refusal(overlapped + "--transformer-impl local"), HasSubstr("needs Transformer Engine"));
    const FlagAccount beside_tp = read(overlapped + "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap").flags;
    ASSERT_EQ(beside_tp.not_computed.size(), 1U);
    EXPECT_EQ(beside_tp.not_computed[0].decides, Decides::fit_and_legal) << "Transformer Engine stops, Megatron-LM does not";
    const std::string graphed = overlapped + "--overlap-grad-reduce --cuda-graph-impl transformer_engine --cuda-graph-modules attn ";
    EXPECT_THAT(refusal(graphed), HasSubstr("with biases"));
    EXPECT_THAT(refusal(graphed + "--disable-bias-linear --no-gradient-accumulation-fusion"),
                HasSubstr("--no-gradient-accumulation-fusion"));
    EXPECT_TRUE(read(graphed + "--disable-bias-linear").training->megatron.delay_wgrad);
}

TEST(MegatronMixtureFlags, ReadsBuffersOfAFixedSizeForExperts) {
    const std::string flexible = kSmall +
                                 "--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
                                 "--use-transformer-engine-op-fuser ";
    const auto buffers = [&](const std::string& more) { return read(flexible + more).training->megatron.expert_buffers; };
    EXPECT_EQ(buffers(""), ExpertBuffers{});
    EXPECT_EQ(buffers("--moe-expert-rank-capacity-factor 1.5"), (ExpertBuffers{.capacity = 1.5}));
    const std::string stash = "--moe-expert-rank-capacity-factor 1.5 --moe-paged-stash ";
    EXPECT_EQ(buffers(stash), (ExpertBuffers{.capacity = 1.5, .paged_stash = true, .pages = 1.1}));
    EXPECT_EQ(buffers(stash + "--moe-paged-stash-buffer-size-factor-cuda -1.2").pages, -1.2) << "of the rows that there are";
    EXPECT_EQ(buffers(stash + "--moe-paged-stash-buffer-size-factor-cuda 0.5 --moe-paged-stash-buffer-size-factor-cpu 0.8").pages, 0.5);
    const auto open = [&](const std::string& more) {
        std::vector<std::string> flags;
        for (const FlagNotComputed& flag : read(flexible + more).flags.not_computed) {
            if (flag.decides == Decides::fit) flags.push_back(flag.flag);
        }
        return flags;
    };
    EXPECT_THAT(open("--moe-expert-rank-capacity-factor 0.9"), ElementsAre("--moe-expert-rank-capacity-factor")) << "each step runs again";
    EXPECT_THAT(open("--moe-expert-rank-capacity-factor 0 --moe-paged-stash"),
                ElementsAre("--moe-expert-rank-capacity-factor", "--moe-paged-stash"));
    EXPECT_THAT(open(stash + "--moe-paged-stash-buffer-size-factor-cuda 0.9"), ElementsAre("--moe-paged-stash-buffer-size-factor-cuda"));
    const FlagAccount host = read(flexible + stash + "--moe-paged-stash-buffer-size-factor-cpu 1 --moe-paged-stash-page-size 128").flags;
    ASSERT_EQ(host.not_computed.size(), 1U);
    EXPECT_EQ(host.not_computed[0].decides, Decides::nothing);
    EXPECT_THAT(host.without_effect, Contains("--moe-paged-stash-page-size"));

    const Job sorted =
        read(kSmall + "--num-experts 8 --moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep " + stash);
    EXPECT_EQ(sorted.training->megatron.expert_buffers, ExpertBuffers{}) << "another dispatcher has none";
    EXPECT_THAT(sorted.flags.without_effect, Contains("--moe-paged-stash"));
    const std::string bare = kSmall + "--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep ";
    EXPECT_THAT(read(bare + stash).assumptions, Contains(HasSubstr("needs neither --use-transformer-engine-op-fuser")));
    EXPECT_THAT(refusal(kSmall + "--num-experts 8 --moe-token-dispatcher-type flex " + stash),
                HasSubstr("hybridep or ncclep, and it is deepep"));
    EXPECT_THAT(refusal(flexible + "--moe-paged-stash"), HasSubstr("--moe-paged-stash needs --moe-expert-rank-capacity-factor; add it"));
    EXPECT_THAT(refusal(flexible + stash + "--cpu-offloading --cpu-offloading-num-layers 1"),
                HasSubstr("--moe-paged-stash does not go with --cpu-offloading"));
    EXPECT_THAT(refusal(flexible + stash + "--fine-grained-activation-offloading --offload-modules moe_act"),
                HasSubstr("--offload-modules moe_act"));
    EXPECT_THAT(refusal(flexible + "--moe-expert-rank-capacity-factor x"), HasSubstr("is no number"));
}

TEST(MegatronMixtureFlags, RepeatsOneLayerOfPrediction) {
    const std::string words = kSmall + "--position-embedding-type rope --mtp-use-repeated-layer --mtp-num-layers ";
    const Job job = read(words + "3");
    EXPECT_TRUE(job.model.mtp_repeated);
    EXPECT_EQ(job.model.mtp_weights(job.model.mtp_layers), 1);
    EXPECT_THAT(read(words + "1").flags.without_effect, Contains("--mtp-use-repeated-layer")) << "one layer is one anyway";
}

}  // namespace
}  // namespace mgplan::formats::megatron_mixture_flags_test
