#include "plan/parameters/computed_parts.hpp"

#include <gtest/gtest.h>

#include "plan/parameters/composed_layer.hpp"

namespace mgplan::computed_parts_test {
namespace {

PartRole role_of(std::string_view kind) {
    const PartKind* const known = find_part_kind(kind);
    return known == nullptr ? PartRole::addition : known->traits.role;
}

TEST(ComputedParts, AreHalvesOfLayersByTheirRole) {
    for (const auto rows : {computed_attention(), computed_state_spaces(), computed_linear_attention()}) {
        for (const ComputedPart& row : rows) EXPECT_EQ(role_of(row.kind), PartRole::mixer) << row.kind;
    }
    for (const ComputedPart& row : computed_feed_forwards()) {
        const PartRole role = role_of(row.kind);
        EXPECT_TRUE(role == PartRole::feed_forward || role == PartRole::mixture) << row.kind;
        EXPECT_EQ(row.traits.accepts_behind != nullptr, role == PartRole::mixture) << row.kind;
    }
}

TEST(ComputedParts, BesideLayersAreKnownKindsAndNoHalves) {
    for (const auto rows : {beside_attention(), beside_state_spaces(), beside_streams(), beside_feed_forwards()}) {
        for (const ComputedBeside& row : rows) {
            EXPECT_NE(find_part_kind(row.kind), nullptr) << row.kind;
            EXPECT_EQ(find_computed_part({std::string(row.kind), {}}), nullptr) << row.kind;
        }
    }
}

TEST(ComputedParts, OnlyAttentionThatFieldsDescribeIsRecordedAsSuch) {
    for (const auto rows : {computed_attention(), computed_state_spaces(), computed_linear_attention()}) {
        for (const ComputedPart& row : rows)
            EXPECT_EQ(!carries_state({std::string(row.kind), {}}), row.kind == "attention" || row.kind == "latent_attention") << row.kind;
    }
}

TEST(ComputedParts, PublishedSetsOfRecomputedModulesComeFirst) {
    ModelSpec model;
    EXPECT_EQ(usual_recompute_modules(model), EnumSet<RecomputeModule>{RecomputeModule::core_attn});
    model.compositions = {{"attention", {{"attention", {}}}}, {"compressed", {{"compressed_attention", {}}}}};
    EXPECT_EQ(usual_recompute_modules(model), EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj});
    EXPECT_EQ(published_recompute_sets(model).size(), 3U);
}

}  // namespace
}  // namespace mgplan::computed_parts_test
