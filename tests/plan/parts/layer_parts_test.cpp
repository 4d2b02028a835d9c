#include "plan/parts/layer_parts.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

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

/// Elements of a part, all and those that one token passes.
std::pair<std::int64_t, std::int64_t> count_of(const LayerPart& part, std::int64_t hidden) {
    std::pair<std::int64_t, std::int64_t> count;
    for (const CountedTensor& tensor : part_tensors(part, hidden)) {
        const std::int64_t elements =
            std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<std::int64_t>());
        count.first += tensor.copies * elements;
        count.second += tensor.copies_of_token * elements;
    }
    return count;
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
        EXPECT_EQ(count_of(part, 8).first > 0, kind->name != "word_choice") << kind->name;
    }
}

TEST(LayerParts, CountAsTheFieldsOfAModelDo) {
    ModelSpec model = tests::llama_of("fields", {.layers = 1, .hidden = 24, .ffn = 40, .heads = 4, .kv_heads = 2, .head_dim = 8});
    model.qk_norm = model.qkv_bias = true;
    const LayerPart attention{
        "attention", {{"heads", model.heads}, {"kv_heads", model.kv_heads}, {"head_dim", model.head_dim}, {"qkv_bias", 1}, {"qk_norm", 1}}};
    const std::vector<LayerPart> layer{{"norm", {{"width", model.hidden}, {"copies", 2}}}, attention, {"mlp", {{"width", model.ffn}}}};
    std::int64_t all = 0;
    for (const LayerPart& part : layer) all += count_of(part, model.hidden).first;
    EXPECT_EQ(all, layer_parameter_count(model, LayerKind::dense, 1, 1, 1).total());
}

TEST(LayerParts, ExpertsThatATokenDoesNotPassAreNotUsed) {
    const LayerPart experts{"experts", {{"experts", 8}, {"top_k", 2}, {"width", 3}}};
    const auto [all, used] = count_of(experts, 5);
    EXPECT_EQ(all, 8 * 5 + 8 * 3 * (3 * 5));
    EXPECT_EQ(used, 8 * 5 + 2 * 3 * (3 * 5));
}

TEST(LayerParts, CountBiasesThatNoTypedMixerHas) {
    constexpr std::int64_t kHidden = 8;
    const auto added = [&](LayerPart part, const std::string& size, std::int64_t value) {
        const std::int64_t before = count_of(part, kHidden).first;
        part.sizes[size] = value;
        return count_of(part, kHidden).first - before;
    };
    const LayerPart mamba{"mamba", {{"inner", 16}, {"state", 4}, {"conv", 4}, {"dt_rank", 2}}};
    EXPECT_EQ(added(mamba, "proj_bias", 1), 2 * 16 + kHidden);
    EXPECT_EQ(added(mamba, "conv_bias", 0), -16);
    EXPECT_EQ(added(mamba, "inner_norms", 1), 2 + 4 + 4);
    EXPECT_EQ(added(mamba, "inner_norms", 2), 0);
    const LayerPart mamba2{"mamba2", {{"inner", 16}, {"heads", 4}, {"groups", 2}, {"state", 3}, {"conv", 4}}};
    EXPECT_EQ(added(mamba2, "proj_bias", 1), 2 * 16 + 2 * 2 * 3 + 4 + kHidden);
    EXPECT_EQ(added(mamba2, "conv_bias", 0), -(16 + 2 * 2 * 3));
    EXPECT_EQ(added({"short_convolution", {{"conv", 3}}}, "bias", 1), 3 * kHidden + kHidden + kHidden);
    EXPECT_EQ(added({"kimi_delta_attention", {{"heads", 2}, {"head_dim", 4}, {"conv", 4}}}, "gate_bias", 1), 2 * 4);
    const LayerPart block{"shared_block", {{"query_heads", 2}, {"kv_heads", 2}, {"head_dim", 4}, {"width", 10}}};
    EXPECT_EQ(added(block, "bias", 1), 2 * 10 + kHidden);
    const LayerPart latent{"latent_attention",
                           {{"heads", 2}, {"q_lora_rank", 5}, {"kv_lora_rank", 6}, {"qk_nope", 4}, {"qk_rope", 2}, {"v_head_dim", 4}}};
    EXPECT_EQ(added(latent, "down_bias", 1), 5 + 6 + 2);
    EXPECT_EQ(added(latent, "output_bias", 1), kHidden);
    EXPECT_EQ(added(latent, "latent_norms", 0), -(5 + 6));
}

TEST(LayerParts, WrongOnesAreRefusedByName) {
    EXPECT_THAT(problems_of({"mamba3", {}}), HasSubstr("part 'mamba3' is not known; use norm"));
    EXPECT_THAT(problems_of({"mlp", {}}), HasSubstr("size 'width' of part 'mlp' is missing"));
    EXPECT_THAT(problems_of({"mlp", {{"width", 0}}}), HasSubstr("width of part 'mlp' = 0 is out of range"));
    EXPECT_THAT(problems_of({"mlp", {{"width", 4}, {"depth", 1}}}), HasSubstr("part 'mlp' has no size 'depth'"));
}

}  // namespace
}  // namespace mgplan
