#include "plan/model/routing_skew.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"

namespace mgplan::routing_skew_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

template <class Read>
std::string problems_of(Read read) {
    try {
        (void)read();
        return "no problem";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

ModelSpec three_mixtures() {
    ModelSpec model;
    model.name = "three";
    model.layers = 4;
    model.moe = MoeSpec{.experts = 4, .top_k = 2, .expert_ffn = 8};
    model.moe_layers = {false, true, true, true};
    return model;
}

TEST(RoutingSkew, IsReadFromAWord) {
    EXPECT_EQ(parse_routing_skew("balanced")->kind, RoutingKind::balanced);
    EXPECT_EQ(parse_routing_skew("uniform"), RoutingSkew{}) << "the default";
    EXPECT_EQ(parse_routing_skew("worst")->kind, RoutingKind::worst);
    EXPECT_EQ(parse_routing_skew("zipf")->exponent, 1);
    EXPECT_EQ(parse_routing_skew("zipf:0.75")->exponent, 0.75);
    for (const char* file : {"", "zip", "counts.json", "histogram", "Zipf"}) EXPECT_FALSE(parse_routing_skew(file)) << file;
    for (const char* bad : {"zipf:", "zipf:x", "zipf:-1", "zipf:11", "zipf:nan", "zipf:1 "}) {
        EXPECT_THAT(problems_of([&] { return parse_routing_skew(bad); }), HasSubstr("no number from 0 to 10; write one, as in zipf:1"))
            << bad;
    }
}

TEST(RoutingSkew, TakesOneListOfCountsOrOneForEachLayer) {
    EXPECT_EQ(routing_histogram(Json::parse("[3, 1, 0, 2.5]"), "f").counts, (std::vector<std::vector<double>>{{3, 1, 0, 2.5}}));
    EXPECT_EQ(routing_histogram(Json::parse("[[3, 1], [0, 2]]"), "f").counts, (std::vector<std::vector<double>>{{3, 1}, {0, 2}}));
    const struct {
        const char* json;
        const char* problem;
    } broken[] = {{"{}", "f is no histogram; write a list of counts"},
                  {"[]", "f is no histogram"},
                  {"7", "f is no histogram"},
                  {"[1, -1]", "f: the count of expert 1 is no number from 0"},
                  {"[1, \"2\"]", "f: the count of expert 1"},
                  {"[1, 1e300]", "f: the count of expert 1"},
                  {"[0, 0]", "f: all counts are 0"},
                  {"[[1, 2], []]", "f: layer 1 is no list"},
                  {"[[1, 2], 3]", "f: layer 1 is no list"},
                  {"[[1, 2], [1, 2, 3]]", "f: layer 1 has counts of 3 experts, layer 0 of 2"},
                  {"[[1, 2], [0, 0]]", "f: layer 1: all counts are 0"}};
    for (const auto& [json, problem] : broken)
        EXPECT_THAT(problems_of([&, text = json] { return routing_histogram(Json::parse(text), "f"); }), HasSubstr(problem)) << json;
}

TEST(RoutingSkew, ComesBackFromItsJson) {
    RoutingSkew zipf;
    zipf.kind = RoutingKind::zipf;
    zipf.exponent = 1.25;
    const RoutingSkew layers = routing_histogram(Json::parse("[[3, 1.5], [0, 2]]"), "f");
    EXPECT_EQ(routing_skew_to_json(layers).dump(), R"({"kind":"histogram","counts":[[3,1.5],[0,2]]})");
    for (const RoutingSkew& skew : {RoutingSkew{}, zipf, layers, *parse_routing_skew("worst"), *parse_routing_skew("balanced")})
        EXPECT_EQ(routing_skew_from_json(Json::parse(routing_skew_to_json(skew).dump()), "f"), skew) << to_text(skew);
    const auto problem = [](const char* json) { return problems_of([&] { return routing_skew_from_json(Json::parse(json), "f"); }); };
    EXPECT_THAT(problem(R"({"kind":"zip"})"), HasSubstr("f: kind = 'zip' is not known; use balanced, uniform, zipf, histogram or worst"));
    EXPECT_THAT(problem(R"({"kind":"zipf","exponent":-1})"), HasSubstr("exponent = -1 is out of range"));
    EXPECT_THAT(problem(R"({"kind":"histogram"})"), HasSubstr("f: field 'counts' is missing"));
    EXPECT_THAT(problem(R"({"kind":"histogram","counts":[]})"), HasSubstr("f.counts is no histogram"));
    EXPECT_THAT(problem(R"({"kind":"uniform","exponent":1})"), HasSubstr("unknown field 'exponent'"));
}

TEST(RoutingSkew, SuitsTheModel) {
    const ModelSpec model = three_mixtures();
    const auto problem = [&](const char* counts, const ModelSpec& of) {
        return problems_of([&] {
            validate(routing_histogram(Json::parse(counts), "f"), of, "f");
            return 0;
        });
    };
    EXPECT_EQ(problem("[1, 2, 3, 4]", model), "no problem");
    EXPECT_EQ(problem("[[1, 2, 3, 4], [1, 0, 0, 0], [1, 1, 1, 1]]", model), "no problem");
    EXPECT_THAT(problem("[1, 2, 3]", model), HasSubstr("f has counts of 3 experts, three has 4; give one for each expert"));
    EXPECT_THAT(problem("[[1, 2, 3, 4], [1, 0, 0, 0]]", model), HasSubstr("f has lists of 2 layers, three has 3 mixture layers"));
    ModelSpec dense = model;
    dense.moe.reset();
    EXPECT_EQ(problem("[1, 2, 3]", dense), "no problem") << "without effect";
}

TEST(RoutingSkew, IsNamedShortly) {
    EXPECT_EQ(to_text(RoutingSkew{}), "uniform");
    EXPECT_EQ(to_text(*parse_routing_skew("zipf:1.20")), "zipf:1.2");
    EXPECT_EQ(to_text(routing_histogram(Json::parse("[1, 2, 3]"), "f")), "histogram of 3 experts");
    EXPECT_EQ(to_text(routing_histogram(Json::parse("[[1, 2, 3], [1, 1, 1]]"), "f")), "histogram of 2 layers x 3 experts");
}

}  // namespace
}  // namespace mgplan::routing_skew_test
