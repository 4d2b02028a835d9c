#include "plan/json/model_layers_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/json/model_json.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/errors.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model_layers_json_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Model small() {
    return typed_model(tests::llama_of(
        "small", {.layers = 3, .hidden = 8, .ffn = 16, .heads = 4, .kv_heads = 2, .head_dim = 2, .vocab = 100, .max_positions = 32}));
}

std::string refusal(const Json& json) {
    try {
        (void)model_from_json(json, "m");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

/// Calls `check` after each change of one member, of whatever depth, and takes the change back.
template <class Value, class Check>
void change_each(Value& value, const std::string& path, const Check& check) {
    if constexpr (HasMembers<Value>) {
        Value::visit_members(value,
                             [&](std::string_view name, auto& member) { change_each(member, path + "." + std::string(name), check); });
    } else {
        const Value before = value;
        if constexpr (std::is_same_v<Value, bool>)
            value = !value;
        else if constexpr (std::is_enum_v<Value>)
            value = static_cast<Value>((static_cast<std::size_t>(value) + 1) % words_of(value).size());
        else if constexpr (std::is_arithmetic_v<Value>)
            value += 1;
        else if constexpr (std::is_same_v<Value, std::string>)
            value += "x";
        else if constexpr (requires { value.has_value(); })
            value ? value.reset() : static_cast<void>(value.emplace());
        else
            value.emplace_back();
        check(path);
        value = before;
    }
}

/// A member that is not compared, hashed or written would be one of these.
template <class Kind>
void expect_every_member_counts(const std::optional<Mixer>& mixer, const std::optional<FeedForward>& feed_forward, Kind& kind,
                                const std::function<void(Layer&)>& place) {
    Model model = small();
    model.kinds.front().mixer = mixer;
    model.kinds.front().feed_forward = feed_forward;
    place(model.kinds.front());
    const Model original = model;
    change_each(kind, std::string(Kind::kKind), [&](const std::string& path) {
        place(model.kinds.front());
        EXPECT_NE(model, original) << path;
        EXPECT_NE(MemberHash()(model), MemberHash()(original)) << path;
        EXPECT_EQ(layers_from_json(layers_to_json(model), "m"), model) << path;
    });
}

template <class... Kinds>
void expect_each_mixer(const std::variant<Kinds...>* /*type*/) {
    const auto one = [](auto kind) { expect_every_member_counts({}, Mlp{}, kind, [&](Layer& layer) { layer.mixer = kind; }); };
    (one(Kinds{}), ...);
}

TEST(ModelLayersJson, HoldsEveryMemberOfEveryKind) {
    expect_each_mixer(static_cast<const Mixer*>(nullptr));
    Mlp mlp;
    expect_every_member_counts(Attention{}, {}, mlp, [&](Layer& layer) { layer.feed_forward = mlp; });
    Mixture mixture;
    expect_every_member_counts(Attention{}, {}, mixture, [&](Layer& layer) { layer.feed_forward = mixture; });
}

TEST(ModelLayersJson, HoldsEveryMemberOfTheModel) {
    Model model = small();
    const Model original = model;
    const auto check = [&](const std::string& path) {
        EXPECT_NE(model, original) << path;
        EXPECT_NE(MemberHash()(model), MemberHash()(original)) << path;
        EXPECT_EQ(layers_from_json(layers_to_json(model), "m"), model) << path;
    };
    change_each(model.embedding, "embedding", check);
    change_each(model.head, "head", check);
    change_each(model.kinds.front().norms, "norms", check);
    change_each(model.kinds.front().residual, "residual", check);
    change_each(model.kinds.front().precision, "precision", check);
    change_each(model.kinds.front().window, "window", check);
    change_each(model.prediction, "prediction", check);
    change_each(model.hidden, "hidden", check);
}

TEST(ModelLayersJson, IsReadAsTheModelThatItDescribes) {
    const ModelSpec spec = tests::llama_of(
        "small", {.layers = 3, .hidden = 8, .ffn = 16, .heads = 4, .kv_heads = 2, .head_dim = 2, .vocab = 100, .max_positions = 32});
    EXPECT_EQ(model_from_json(layers_to_json(typed_model(spec)), "m"), spec);
}

TEST(ModelLayersJson, NamesTheNearestOfAnUnknownKind) {
    Json json = layers_to_json(small());
    json["kinds"][0]["mixer"]["kind"] = "atention";
    EXPECT_THAT(refusal(json), HasSubstr("m: kinds[0].mixer: kind 'atention' is not known; did you mean attention?"));
    json["kinds"][0]["mixer"]["kind"] = "xyz";
    EXPECT_THAT(refusal(json), AllOf(HasSubstr("kind 'xyz' is not known; use"), HasSubstr("lightning_attention")));
}

TEST(ModelLayersJson, HasNoFieldsOfLayersAtTheTop) {
    Json json = layers_to_json(small());
    json["heads"] = 4;
    EXPECT_THAT(refusal(json), HasSubstr("heads"));
    json = layers_to_json(small());
    json["kinds"][0]["mixer"]["kv_head"] = 4;
    EXPECT_THAT(refusal(json), AllOf(HasSubstr("m: kinds[0].mixer"), HasSubstr("kv_head"), HasSubstr("kv_heads")));
}

TEST(ModelLayersJson, RefusesLayersOfNoKindAndKindsOfNoLayer) {
    Json json = layers_to_json(small());
    json["layers"] = Json::parse("[[1, 3]]");
    EXPECT_THAT(refusal(json), AllOf(HasSubstr("layers name kind 1 of 1"), HasSubstr("kinds[0] is the kind of no layer")));
    json = layers_to_json(small());
    json["kinds"][0].erase("mixer");
    json["kinds"][0].erase("feed_forward");
    EXPECT_THAT(refusal(json), HasSubstr("kinds[0] has neither mixer nor feed_forward"));
    json = layers_to_json(small());
    json.erase("layers");
    EXPECT_THAT(refusal(json), HasSubstr("layers is missing"));
    json = layers_to_json(small());
    json["version"] = 3;
    EXPECT_THAT(refusal(json), HasSubstr("version = 3 is not known; give 2"));
}

TEST(ModelLayersJson, NamesAValueInWhichLayersMayNotDifferYet) {
    Model model = small();
    model.kinds.push_back(model.kinds.front());
    std::get<Attention>(*model.kinds.back().mixer).scores.softcap = 30;
    model.kind_of_layer.back() = 1;
    EXPECT_THAT(refusal(layers_to_json(model)), HasSubstr("m: kinds[0].mixer.scores.softcap = its default, where other layers have 30"));
}

}  // namespace
}  // namespace mgplan::model_layers_json_test
