#include "plan/model/layer_parts.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/parameters/parameters.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan {
namespace {

using testing::HasSubstr;

std::string problems_of(const LayerPart& part) {
    Problems problems;
    check_part(part, "here", problems);
    try {
        problems.throw_if_any();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(LayerParts, NamesStandOnceAndEveryKindCounts) {
    std::set<std::string_view> names;
    for (const PartKind* kind : part_kinds()) {
        EXPECT_TRUE(names.insert(kind->name).second) << kind->name;
        LayerPart part{std::string(kind->name), {}};
        for (const PartSize& size : kind->sizes) {
            if (size.fallback < 0) part.sizes[std::string(size.name)] = std::max<std::int64_t>(size.low, 2);
        }
        EXPECT_EQ(problems_of(part), "") << kind->name;
        // A table that nothing trains is none of the parameters.
        EXPECT_EQ(count_part(part, 8).all > 0, kind->name != "word_choice") << kind->name;
        EXPECT_EQ(estimate_parts({part}, 8), static_cast<double>(count_part(part, 8).all)) << kind->name;
    }
}

TEST(LayerParts, TraitsNameSizesThatTheirKindHas) {
    for (const PartKind* kind : part_kinds()) {
        for (const std::string_view named : {kind->traits.takes_over, kind->traits.streams}) {
            const bool known =
                std::any_of(kind->sizes.begin(), kind->sizes.end(), [&](const PartSize& size) { return size.name == named; });
            EXPECT_TRUE(named.empty() || known) << kind->name << ", " << named;
        }
    }
}

TEST(LayerParts, OfAModelSayWhetherKeysAreTakenOver) {
    ModelSpec model;
    const auto with = [&](std::int64_t shares) {
        model.compositions = {
            {"attention", {{"gemma_attention", {{"heads", 2}, {"kv_heads", 1}, {"head_dim", 4}, {"shares_kv", shares}}}}}};
        return model;
    };
    EXPECT_FALSE(has_keys_taken_over(with(0)));
    EXPECT_TRUE(has_keys_taken_over(with(1)));
    EXPECT_FALSE(has_part_with(model, &PartTraits::keeps_core));
    model.compositions.front().parts.push_back({"compressed_attention", {}});
    EXPECT_TRUE(has_part_with(model, &PartTraits::keeps_core));
    EXPECT_FALSE(has_keys_taken_over({})) << "fields describe its layers";
}

TEST(LayerParts, CountAsTheFieldsOfAModelDo) {
    ModelSpec model = tests::llama_of("fields", {.layers = 1, .hidden = 24, .ffn = 40, .heads = 4, .kv_heads = 2, .head_dim = 8});
    model.qk_norm = model.qkv_bias = true;
    const LayerPart attention{
        "attention", {{"heads", model.heads}, {"kv_heads", model.kv_heads}, {"head_dim", model.head_dim}, {"qkv_bias", 1}, {"qk_norm", 1}}};
    const std::vector<LayerPart> layer{{"norm", {{"width", model.hidden}, {"copies", 2}}}, attention, {"mlp", {{"width", model.ffn}}}};
    EXPECT_EQ(count_parts(layer, model.hidden).all, layer_parameter_count(model, LayerKind::dense, 1, 1, 1).total());
}

TEST(LayerParts, ExpertsThatATokenDoesNotPassAreNotUsed) {
    const LayerPart experts{"experts", {{"experts", 8}, {"top_k", 2}, {"width", 3}}};
    const PartCount count = count_part(experts, 5);
    EXPECT_EQ(count.all, 8 * 5 + 8 * 3 * (3 * 5));
    EXPECT_EQ(count.used, 8 * 5 + 2 * 3 * (3 * 5));
}

TEST(LayerParts, WrongOnesAreRefusedByName) {
    EXPECT_THAT(problems_of({"mamba3", {}}), HasSubstr("part 'mamba3' is not known; use norm"));
    EXPECT_THAT(problems_of({"mlp", {}}), HasSubstr("size 'width' of part 'mlp' is missing"));
    EXPECT_THAT(problems_of({"mlp", {{"width", 0}}}), HasSubstr("width of part 'mlp' = 0 is out of range"));
    EXPECT_THAT(problems_of({"mlp", {{"width", 4}, {"depth", 1}}}), HasSubstr("part 'mlp' has no size 'depth'"));
}

}  // namespace
}  // namespace mgplan
