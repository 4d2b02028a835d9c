#include "simulator/piece/shard_key.hpp"

#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "plan/layout/layout_switches.hpp"

namespace mgplan::simulator::shard_key_test {
namespace {

/// One for each field of Layout that layers depend on.
const std::vector<std::function<void(Layout&)>> kChanges{
    [](Layout& layout) { layout.sizes.tp = 2; },
    [](Layout& layout) { layout.sizes.cp = 2; },
    [](Layout& layout) { layout.sizes.ep = 2; },
    [](Layout& layout) { layout.sizes.etp = 2; },
    [](Layout& layout) { layout.micro_batch = 2; },
    [](Layout& layout) { layout.sequence_parallel = true; },
    [](Layout& layout) { layout.cp_comm_type = CpCommType::a2a; },
    [](Layout& layout) {
        layout.recompute = Recompute::selective;
        layout.recompute_modules.add(RecomputeModule::core_attn);
    },
    [](Layout& layout) { layout.engine = Engine::megatron; },
};

TEST(ShardKey, TellsApartWhatLayersDependOn) {
    std::set<std::size_t> hashes{shard_key(Layout()).hash()};
    for (const auto& change : kChanges) {
        Layout layout;
        change(layout);
        EXPECT_NE(shard_key(layout), shard_key(Layout()));
        hashes.insert(shard_key(layout).hash());
    }
    EXPECT_EQ(hashes.size(), kChanges.size() + 1) << "the hash takes every field";
}

TEST(ShardKey, TellsSwitchesOfLayersApart) {
    ModelSpec model;
    model.moe.emplace();
    const TrainingSpec training;
    std::set<std::size_t> hashes;
    for (const LayoutSwitches& choice : {LayoutSwitches{}, LayoutSwitches{.dispatcher = TokenDispatcher::deep_ep},
                                         LayoutSwitches{.overlap_tp = true}, LayoutSwitches{.bf16_gradients = true}}) {
        ModelSpec switched = model;
        TrainingSpec with = training;
        apply_switches(choice, switched, with);
        ShardKey key;
        key.switches = layer_switches(switched, with);
        hashes.insert(key.hash());
    }
    EXPECT_EQ(hashes.size(), 4U);
}

/// Every module that a set can hold, those too that there are not yet.
TEST(ShardKey, TellsEverySetOfModulesApart) {
    constexpr unsigned kMostModules = 32;
    std::set<std::size_t> hashes;
    for (unsigned module = 0; module < kMostModules; ++module) {
        Layout layout;
        layout.recompute = Recompute::selective;
        layout.recompute_modules.add(static_cast<RecomputeModule>(module));
        EXPECT_NE(shard_key(layout), shard_key(Layout())) << module;
        hashes.insert(shard_key(layout).hash());
    }
    EXPECT_EQ(hashes.size(), kMostModules);
}

TEST(ShardKey, KnowsModulesOfSelectiveRecomputeAlone) {
    Layout layout;
    layout.recompute_modules.add(RecomputeModule::mlp);
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        layout.recompute = recompute;
        EXPECT_EQ(shard_key(layout), shard_key(Layout()));
    }
}

/// A module or size that is new belongs to both halves of a layer until somebody says otherwise: traces are then shared too rarely,
/// never wrongly.
TEST(ShardKey, HalvesOfALayerLeaveOutWhatOnlyTheOtherDependsOn) {
    using enum RecomputeModule;
    constexpr auto kNew = static_cast<RecomputeModule>(20);
    ShardKey key;
    key.tp = key.cp = key.ep = key.etp = key.micro_batch = 2;
    key.sequence_parallel = true;
    key.cp_comm_type = CpCommType::a2a;
    key.engine = Engine::megatron;
    key.modules = {core_attn, mlp, moe_act, layernorm, mla_up_proj, moe, shared_experts, kNew};
    key.switches = {.dispatcher = TokenDispatcher::deep_ep, .overlap_tp = true, .gradient_bytes = 2};

    ShardKey dense = key;
    dense.ep = dense.etp = 1;
    dense.modules = {core_attn, mlp, layernorm, mla_up_proj, kNew};
    dense.switches.dispatcher = TokenDispatcher::all_to_all;
    EXPECT_EQ(without_experts(key), dense);

    ShardKey mixture = key;
    mixture.cp = mixture.micro_batch = 1;
    mixture.cp_comm_type = CpCommType::p2p;
    mixture.modules = {moe_act, layernorm, moe, shared_experts, kNew};
    EXPECT_EQ(feed_forward_alone(key, true), mixture);

    ShardKey mlp_half = dense;
    mlp_half.cp = mlp_half.micro_batch = 1;
    mlp_half.cp_comm_type = CpCommType::p2p;
    mlp_half.modules = {mlp, layernorm, kNew};
    EXPECT_EQ(feed_forward_alone(key, false), mlp_half);

    ShardKey mixer = dense;
    mixer.modules = {core_attn, layernorm, mla_up_proj, kNew};
    EXPECT_EQ(mixer_alone(key), mixer);

    ShardKey ends = dense;
    ends.cp_comm_type = CpCommType::p2p;
    ends.modules = {};
    EXPECT_EQ(ends_alone(key), ends);
}

}  // namespace
}  // namespace mgplan::simulator::shard_key_test
